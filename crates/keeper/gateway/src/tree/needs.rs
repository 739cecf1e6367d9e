//! What requests need before they can be executed, and how large they are.

use crate::paths;
use crate::wire::{Acl, Request};
use bytes::Bytes;

/// Approximate memory of a request, and approximate size of what it writes.
pub(super) fn bytes_of(request: &Request) -> usize {
    let of_data = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
    let of_entry = |entry: &Acl| entry.scheme.len() + entry.id.len() + size_of::<Acl>();
    let of_acl = |acl: &[Acl]| acl.iter().map(of_entry).sum::<usize>();
    let more = match request {
        Request::Create {
            path, data, acl, ..
        } => 2 * path.len() + of_data(data) + of_acl(acl),
        Request::SetData { path, data, .. } => 2 * path.len() + of_data(data),
        Request::SetAcl { path, acl, .. } => path.len() + of_acl(acl),
        Request::Delete { path, .. }
        | Request::DeleteContainer { path }
        | Request::Check { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. }
        | Request::List { path, .. }
        | Request::ListRecursive { path, .. }
        | Request::CheckNotExists { path, .. }
        | Request::CheckStat { path, .. }
        | Request::TryDelete { path, .. }
        | Request::DeleteRecursive { path, .. } => path.len(),
        Request::NoPath(request) => bytes_of(request),
        Request::Multi { operations } | Request::MultiRead { operations, .. } => {
            operations.iter().map(bytes_of).sum()
        }
        _ => 0,
    };
    300 + more
}

pub(super) fn visit_with_parent(path: &str, visit: &mut dyn FnMut(&str)) {
    visit_valid(path, visit);
    if let Some(parent) = paths::parent(path) {
        visit_valid(parent, visit);
    }
}

pub(super) fn visit_valid(path: &str, visit: &mut dyn FnMut(&str)) {
    if paths::is_valid(path) {
        visit(path);
    }
}

/// Nodes that must be known to execute a request.
pub(super) fn needs_of(request: &Request, visit: &mut dyn FnMut(&str)) {
    match request {
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::DeleteContainer { path }
        | Request::TryDelete { path, .. }
        | Request::DeleteRecursive { path, .. } => {
            visit_with_parent(path, visit);
        }
        Request::SetData { path, .. }
        | Request::SetAcl { path, .. }
        | Request::Check { path, .. }
        | Request::CheckNotExists { path, .. }
        | Request::CheckStat { path, .. } => {
            visit_valid(path, visit);
        }
        Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. }
        | Request::List { path, .. }
        | Request::ListRecursive { path, .. } => visit_valid(paths::named(path), visit),
        Request::Multi { operations } | Request::MultiRead { operations, .. } => {
            operations.iter().for_each(|o| needs_of(o, visit));
        }
        _ => {}
    }
}
