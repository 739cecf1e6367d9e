//! What a tree and a table have alike, beside their ways to find a key.

/// What to do with a key depending on whether it is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    Absent,
    Present,
}

/// Implements it for a structure with a root object, settings, a `put` for all cases, and a `check` that finds all of
/// its objects.
macro_rules! keyed {
    ($structure:ident, $settings:ty) => {
        impl $structure {
            /// The root object, which stays where it is.
            pub fn root(&self) -> Pointer {
                self.root
            }

            pub fn settings(&self) -> &$settings {
                &self.settings
            }

            /// Where new objects should lie.
            pub(super) fn near(&self) -> Pointer {
                if self.settings.is_spread {
                    Pointer::NULL
                } else {
                    self.root
                }
            }

            /// Sets the value of a key. True if the key is new.
            pub async fn set<O: Objects>(&self, tx: &O, key: &[u8], value: &[u8]) -> Result<bool> {
                let was_there = self.put(tx, key, value, When::Always).await?;
                Ok(!was_there)
            }

            /// Sets the value of a new key. False, and nothing is changed, if the key is there.
            pub async fn insert<O: Objects>(
                &self,
                tx: &O,
                key: &[u8],
                value: &[u8],
            ) -> Result<bool> {
                let was_there = self.put(tx, key, value, When::Absent).await?;
                Ok(!was_there)
            }

            /// Sets the value of a key that is there. False, and nothing is changed, if it is not.
            pub async fn update<O: Objects>(
                &self,
                tx: &O,
                key: &[u8],
                value: &[u8],
            ) -> Result<bool> {
                self.put(tx, key, value, When::Present).await
            }

            /// Ends all objects, the root object too. All in this transaction: what is large is first emptied by
            /// `remove` in several.
            pub async fn destroy<O: Objects>(self, tx: &O) -> Result<()> {
                for at in self.check(tx).await?.objects {
                    tx.free(at).await?;
                }
                Ok(())
            }
        }
    };
}

pub(crate) use keyed;
