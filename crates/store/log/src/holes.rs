//! Versions of a log server that cannot be read, because blocks of its files are damaged. Other log servers may have
//! them: readers get what comes before a hole and what comes behind it here, and the rest there.

use plinth_core::{Error, Result, Version};

/// Pairs of versions: those behind the first, up to the second, are not there. In order.
#[derive(Default)]
pub(crate) struct Holes(Vec<(Version, Version)>);

impl Holes {
    pub fn add(&mut self, after: Version, up_to: Version) {
        if after < up_to {
            let place = self.0.partition_point(|hole| hole.0 < after);
            self.0.insert(place, (after, up_to));
        }
    }

    /// The version before which all versions from `begin` on can be read; `None` if there is no hole behind it. Fails
    /// if `begin` is in a hole.
    pub fn readable_until(&self, begin: Version) -> Result<Option<Version>> {
        match self.0.iter().find(|(_, up_to)| *up_to >= begin) {
            Some((after, _)) if *after < begin => Err(Error::file_corrupt),
            Some((after, _)) => Ok(Some(after + 1)),
            None => Ok(None),
        }
    }

    pub fn all(&self) -> &[(Version, Version)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_hole_is_read_up_to_the_next_one() {
        let mut holes = Holes::default();
        holes.add(20, 30);
        holes.add(5, 5);
        holes.add(0, 10);
        let until = |begin| holes.readable_until(begin);
        assert_eq!(until(1), Err(Error::file_corrupt));
        assert_eq!(until(10), Err(Error::file_corrupt));
        assert_eq!((until(11), until(20)), (Ok(Some(21)), Ok(Some(21))));
        assert_eq!(until(21), Err(Error::file_corrupt));
        assert_eq!(until(31), Ok(None));
        assert_eq!(holes.all(), [(0, 10), (20, 30)]);
        assert_eq!(Holes::default().readable_until(1), Ok(None));
    }
}
