//! What is compared: policies for old versions (§5.3), and the engine with and without opacity (§5.2).

use plinth_farm_engine::{Options, Policy};

/// One side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    policy: Policy,
    is_opaque: bool,
}

const POLICIES: [(&str, Policy); 4] = [
    ("block", Policy::MvBlock),
    ("abort", Policy::MvAbort),
    ("truncate", Policy::MvTruncate),
    ("single", Policy::SingleVersion),
];

pub fn policy_name(policy: Policy) -> &'static str {
    let named = POLICIES.iter().find(|(_, other)| *other == policy);
    named.map_or("", |(name, _)| name)
}

/// What [`parse_policy`] takes.
pub fn policy_names() -> impl Iterator<Item = &'static str> {
    POLICIES.into_iter().map(|(name, _)| name)
}

/// The error says which there are.
pub fn parse_policy(name: &str) -> Result<Policy, String> {
    let named = POLICIES.iter().find(|(other, _)| *other == name);
    named
        .map(|(_, policy)| *policy)
        .ok_or("there are block, abort, truncate and single".into())
}

impl Mode {
    pub fn opaque(policy: Policy) -> Mode {
        Mode {
            policy,
            is_opaque: true,
        }
    }

    /// Serializable, but not strict, and in single versions: as near to the paper's baseline as the engine comes.
    pub fn not_opaque() -> Mode {
        Mode {
            policy: Policy::SingleVersion,
            is_opaque: false,
        }
    }

    /// Each policy with opacity if `on`, and one side without it if `off`.
    pub fn all(policies: &[Policy], on: bool, off: bool) -> Vec<Mode> {
        let opaque = policies.iter().filter(|_| on).copied().map(Mode::opaque);
        opaque.chain(off.then(Mode::not_opaque)).collect()
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    pub fn name(&self) -> &'static str {
        match self.is_opaque {
            true => policy_name(self.policy),
            false => "no opacity",
        }
    }

    fn strictly(&self, options: Options) -> Options {
        match self.is_opaque {
            true => options,
            false => options.not_strict(),
        }
    }

    pub fn reading(&self) -> Options {
        self.strictly(Options::read_only())
    }

    /// A transaction that will surely write.
    pub fn writing(&self) -> Options {
        self.strictly(Options {
            will_write: true,
            ..Options::default()
        })
    }
}
