//! What ships beside the binary is accepted by it: the configuration and policies of
//! `deploy/`. Whether the container and the unit work is not tried here.

use std::{fs, path::Path};

use hangu::{config::Config, policy::Policies};

#[test]
fn the_configuration_in_deploy_has_no_fault() {
    let credentials = tempfile::tempdir().unwrap();
    for name in ["corp-gateway-key", "platform-key"] {
        fs::write(credentials.path().join(name), "a-key-of-a-test\n").unwrap();
    }
    let place = credentials.path().display().to_string();
    let env = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| place.clone());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/hangu.yaml");

    let loaded = Config::look(&file, &env);
    assert!(loaded.faults.is_empty(), "{:#?}", loaded.faults);

    let policies = Policies::look(&loaded.policies.unwrap());
    assert!(policies.faults.is_empty(), "{:#?}", policies.faults);
    assert_eq!(policies.files, 1);
}
