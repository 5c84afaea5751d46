//! Ranges, entries and guards, by tables.

use super::*;

#[test]
fn a_public_server_is_on_the_open_internet() {
    let guard = Guard::public(&Egress::new(EgressConfig::default()));
    let admits = |url: &str| guard.admits(&Endpoint::parse(url).unwrap());
    assert_eq!(admits("https://93.184.215.14/mcp"), Ok(()));
    assert_eq!(admits("https://mcp.example.com/"), Ok(()));
    let denied = admits("http://10.0.0.5/").unwrap_err();
    assert_eq!(denied.why, Why::Class(Class::Private));
}
