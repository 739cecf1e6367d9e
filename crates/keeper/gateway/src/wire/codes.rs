//! The numbers of the protocol.

use std::fmt;

/// Why a request failed; 0 if it did not. A number that is not listed is possible: it comes from another server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$meta])* pub const $name: Code = Code($number);)*

            /// ZooKeeper's name of it; `None` if it has none.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Code::$name => Some($text),)*
                    _ => None,
                }
            }
        }
        #[cfg(test)]
        const ALL: &[Code] = &[$(Code::$name),*];
    };
}

codes! {
    OK = 0, "Ok";
    SYSTEM_ERROR = -1, "SystemError";
    /// Stands in the answer to a multi for the operations after the one that failed.
    RUNTIME_INCONSISTENCY = -2, "RuntimeInconsistency";
    DATA_INCONSISTENCY = -3, "DataInconsistency";
    CONNECTION_LOSS = -4, "ConnectionLoss";
    MARSHALLING_ERROR = -5, "MarshallingError";
    UNIMPLEMENTED = -6, "Unimplemented";
    OPERATION_TIMEOUT = -7, "OperationTimeout";
    BAD_ARGUMENTS = -8, "BadArguments";
    UNKNOWN_SESSION = -12, "UnknownSession";
    NEW_CONFIG_NO_QUORUM = -13, "NewConfigNoQuorum";
    RECONFIG_IN_PROGRESS = -14, "ReconfigInProgress";
    API_ERROR = -100, "ApiError";
    NO_NODE = -101, "NoNode";
    NO_AUTH = -102, "NoAuth";
    BAD_VERSION = -103, "BadVersion";
    NO_CHILDREN_FOR_EPHEMERALS = -108, "NoChildrenForEphemerals";
    NODE_EXISTS = -110, "NodeExists";
    NOT_EMPTY = -111, "NotEmpty";
    SESSION_EXPIRED = -112, "SessionExpired";
    INVALID_CALLBACK = -113, "InvalidCallback";
    INVALID_ACL = -114, "InvalidAcl";
    AUTH_FAILED = -115, "AuthFailed";
    SESSION_MOVED = -118, "SessionMoved";
    NOT_READ_ONLY = -119, "NotReadOnly";
    EPHEMERAL_ON_LOCAL_SESSION = -120, "EphemeralOnLocalSession";
    NO_WATCHER = -121, "NoWatcher";
    REQUEST_TIMEOUT = -122, "RequestTimeout";
    RECONFIG_DISABLED = -123, "ReconfigDisabled";
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124, "SessionClosedRequireSaslAuth";
    QUOTA_EXCEEDED = -125, "QuotaExceeded";
    THROTTLED_OP = -127, "ThrottledOp";
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Code({})", self.0),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Code {}

/// Kinds of requests. The ones of results in a multi are from the same list.
pub mod opcode {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN_2: i32 = 12;
    /// Only in a multi. To ZooKeeper's server since 3.9.3, one that stands alone is of an unknown kind.
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE_2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES_2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    // Those from here on are of ClickHouse's keeper.
    pub const FILTERED_LIST: i32 = 500;
    pub const CHECK_NOT_EXISTS: i32 = 501;
    pub const CREATE_IF_NOT_EXISTS: i32 = 502;
    pub const REMOVE_RECURSIVE: i32 = 503;
    pub const CHECK_STAT: i32 = 504;
    pub const TRY_REMOVE: i32 = 505;
    pub const LIST_WITH_STAT_AND_DATA: i32 = 506;
    pub const LIST_RECURSIVE: i32 = 507;
    pub const CREATE_SESSION: i32 = -10;
    pub const CLOSE_SESSION: i32 = -11;
    /// A failed operation in the answer to a multi; also the end of a multi's list.
    pub const ERROR: i32 = -1;
}

/// The xids that are no numbers of requests.
pub mod xid {
    pub const WATCH_EVENT: i32 = -1;
    pub const PING: i32 = -2;
    pub const AUTH: i32 = -4;
    pub const SET_WATCHES: i32 = -8;
}

/// What a watch has seen.
pub mod event {
    pub const NONE: i32 = -1;
    pub const CREATED: i32 = 1;
    pub const DELETED: i32 = 2;
    pub const DATA_CHANGED: i32 = 3;
    pub const CHILDREN_CHANGED: i32 = 4;
    pub const DATA_WATCH_REMOVED: i32 = 5;
    pub const CHILD_WATCH_REMOVED: i32 = 6;
    pub const PERSISTENT_WATCH_REMOVED: i32 = 7;
}

/// State of the client's connection, as an event tells it.
pub mod keeper_state {
    pub const DISCONNECTED: i32 = 0;
    pub const SYNC_CONNECTED: i32 = 3;
    pub const AUTH_FAILED: i32 = 4;
    pub const CONNECTED_READ_ONLY: i32 = 5;
    pub const SASL_AUTHENTICATED: i32 = 6;
    pub const EXPIRED: i32 = -112;
    pub const CLOSED: i32 = 7;
}

/// What an entry of an access list allows: the sum of these.
pub mod permission {
    pub const READ: i32 = 1;
    pub const WRITE: i32 = 2;
    pub const CREATE: i32 = 4;
    pub const DELETE: i32 = 8;
    pub const ADMIN: i32 = 16;
    pub const ALL: i32 = 31;
}

/// Flags of a create: one of these numbers, not a set of bits.
pub mod create_flags {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL: i32 = 1;
    pub const PERSISTENT_SEQUENTIAL: i32 = 2;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
    pub const CONTAINER: i32 = 4;
    pub const PERSISTENT_WITH_TTL: i32 = 5;
    pub const PERSISTENT_SEQUENTIAL_WITH_TTL: i32 = 6;
}

/// Modes of an added watch.
pub mod watch_mode {
    pub const PERSISTENT: i32 = 0;
    pub const PERSISTENT_RECURSIVE: i32 = 1;
}

/// Kinds of watches that a client checks or removes.
pub mod watcher {
    pub const CHILDREN: i32 = 1;
    pub const DATA: i32 = 2;
    pub const ANY: i32 = 3;
    pub const PERSISTENT: i32 = 4;
    pub const PERSISTENT_RECURSIVE: i32 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_number_and_a_name_of_its_own() {
        let numbers: std::collections::BTreeSet<Code> = ALL.iter().copied().collect();
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|code| code.name()).collect();
        assert_eq!((numbers.len(), names.len()), (ALL.len(), ALL.len()));
        assert_eq!(
            format!("{} {}", Code(-101), Code(-999)),
            "NoNode Code(-999)"
        );
    }
}
