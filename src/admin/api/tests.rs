//! The table of routes: what holds of each of them.

use std::collections::HashSet;

use http::Method;

use super::{
    ROUTES,
    route::find,
    tokens::{Need, Role},
};

#[test]
fn each_route_has_a_name_and_a_path_of_its_own_and_what_writes_is_recorded() {
    let (mut names, mut places) = (HashSet::new(), HashSet::new());
    for route in &ROUTES {
        let what = format!("{} {}", route.method, route.path);
        assert!(names.insert(route.id), "{what}: `{}` is another one's too", route.id);
        assert!(places.insert(what.clone()), "{what} is there twice");
        assert!(!route.writes() || route.action.is_some(), "{what} writes, and has no action");
        assert!(route.writes() || route.body.is_none(), "{what} only looks, and takes a body");
        assert!(route.writes() == (route.need != Need::Look), "{what}: everybody may look alone");
        let parts: Vec<_> = route.parts().collect();
        assert_eq!(parts.iter().collect::<HashSet<_>>().len(), parts.len(), "{what}");
        // What stands for its parts is given to it, and no other route takes it.
        let path = parts.iter().fold(route.path.to_owned(), |path, part| {
            path.replace(&format!("{{{part}}}"), &format!("a%2F{part}+"))
        });
        let (found, given) = find(&route.method, &path).unwrap();
        assert_eq!(found.id, route.id, "{path}");
        assert_eq!(given, parts.iter().map(|it| format!("a/{it}+")).collect::<Vec<_>>(), "{path}");
    }
}

#[test]
fn a_path_that_is_none_is_not_found_and_a_method_that_is_none_is_told() {
    for (method, path, status, allow) in [
        (Method::GET, "/admin/api", 404, None),
        (Method::GET, "/admin/api/", 404, None),
        (Method::GET, "/admin/api/nothing", 404, None),
        (Method::GET, "/admin/api/tools/", 404, None),
        (Method::DELETE, "/admin/api/credentials/acme", 404, None),
        (Method::DELETE, "/admin/api/credentials//E1", 404, None),
        (Method::DELETE, "/admin/api/credentials/acme/E1/mcp_a/more", 404, None),
        (Method::POST, "/admin/api/credentials", 405, Some("GET")),
        (Method::GET, "/admin/api/secrets/x", 405, Some("PUT, DELETE")),
    ] {
        let failure = find(&method, path).map(|(route, _)| route.id).unwrap_err();
        assert_eq!(failure.status.as_u16(), status, "{method} {path}");
        assert_eq!(failure.allow.as_deref(), allow, "{method} {path}");
    }
    assert!(find(&Method::HEAD, "/admin/api/config").is_ok());
}

#[test]
fn each_role_may_do_what_it_is_for() {
    use Need::{Approve, Look, Operate, Secure};
    for (role, may) in [
        (Role::Viewer, &[Look][..]),
        (Role::Operator, &[Look, Operate]),
        (Role::Approver, &[Look, Approve]),
        (Role::Security, &[Look, Approve, Secure]),
        (Role::All, &[Look, Operate, Approve, Secure]),
    ] {
        for need in [Look, Operate, Approve, Secure] {
            assert_eq!(role.may(need), may.contains(&need), "{role:?} {need:?}");
        }
    }
}
