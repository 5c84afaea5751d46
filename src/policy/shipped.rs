//! The files in `policies/`, as the demo runs on them without a folder.

use std::sync::Arc;

use super::PolicyFile;
use crate::fault::Source;

const FILES: [(&str, &str); 7] = [
    ("approvals.yaml", include_str!("../../policies/approvals.yaml")),
    ("directory.yaml", include_str!("../../policies/directory.yaml")),
    ("limits.yaml", include_str!("../../policies/limits.yaml")),
    ("platform.yaml", include_str!("../../policies/platform.yaml")),
    ("tenants/acme.yaml", include_str!("../../policies/tenants/acme.yaml")),
    ("tenants/globex.yaml", include_str!("../../policies/tenants/globex.yaml")),
    ("tools.yaml", include_str!("../../policies/tools.yaml")),
];

/// The shipped files, for [`Policies::compile`](super::Policies::compile).
pub fn shipped() -> Vec<PolicyFile> {
    FILES
        .iter()
        .map(|(path, text)| PolicyFile {
            path: (*path).to_owned(),
            source: Arc::new(Source { name: format!("policies/{path}"), text: (*text).to_owned() }),
        })
        .collect()
}
