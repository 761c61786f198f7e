//! The name of a cluster, for people: what keeps a server from joining the wrong one, or from
//! starting on another one's data.
//!
//! A cluster is known by its id; the name is given once, by the server that hosts the master, and
//! stands in the data directories of all its servers. Whoever names no cluster is not checked.

use std::path::Path;

use timestone_types::ClusterId;

use crate::error::ServerError;

/// Longest name.
const MAX_NAME_BYTES: usize = 64;

/// A cluster as its owner names it: by its name, or by its id in hexadecimal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClusterName(String);

impl ClusterName {
    /// # Errors
    /// [`ServerError::BadClusterName`].
    pub(crate) fn parse(name: &str) -> Result<Self, ServerError> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(fine) {
            return Err(ServerError::BadClusterName { name: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the cluster's id, as `timestone status` shows it.
    pub(crate) fn is_id_of(&self, cluster: ClusterId) -> bool {
        self.0.len() == 16 && u64::from_str_radix(&self.0, 16) == Ok(cluster.get())
    }

    /// Whether this cluster of this name, if it has one, is the one that is meant.
    pub(crate) fn means(&self, cluster: ClusterId, name: Option<&str>) -> bool {
        name == Some(self.as_str()) || self.is_id_of(cluster)
    }

    /// A cluster for error messages.
    pub(crate) fn describe(cluster: ClusterId, name: Option<&str>) -> String {
        let id = format!("{:016x}", cluster.get());
        name.map_or_else(|| format!("{id}, which has no name"), |name| format!("'{name}' ({id})"))
    }

    /// Whether the data at `place` is of the cluster that is meant.
    ///
    /// # Errors
    /// [`ServerError::OtherCluster`].
    pub(crate) fn check(
        &self,
        place: &Path,
        cluster: ClusterId,
        name: Option<&str>,
    ) -> Result<(), ServerError> {
        if self.means(cluster, name) {
            return Ok(());
        }
        let found = Self::describe(cluster, name);
        Err(ServerError::OtherCluster { wanted: self.0.clone(), place: place.to_owned(), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_known_by_name_and_by_id() {
        let cluster = ClusterId::new(0x1f);
        let check = |wanted: &str, name| {
            ClusterName::parse(wanted).unwrap().check(Path::new("/data/master"), cluster, name)
        };
        assert!(check("blue", Some("blue")).is_ok());
        assert!(check("000000000000001f", Some("blue")).is_ok());
        let error = check("green", Some("blue")).unwrap_err().to_string();
        assert!(
            error
                .contains("--cluster says 'green', but /data/master belongs to cluster 'blue' (00"),
            "{error}"
        );
        let error = check("green", None).unwrap_err().to_string();
        assert!(
            error.contains(
                "000000000000001f, which has no name; give the right name, or another --data"
            ),
            "{error}"
        );
        for bad in ["", "with space", "a/b", &"x".repeat(65)] {
            assert!(ClusterName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
