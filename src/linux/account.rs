//! Users and groups of the host, as the name service tells them. Source: getpwnam(3), getgrouplist(3).

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The group of nobody's files: what the kernel shows for groups that it cannot name, and what Debian calls
/// `nogroup`. Source: proc_sys_fs(5), `overflowgid`.
const NO_GROUP: u32 = 65_534;

/// The user a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub uid: u32,
    /// Its primary group, or the one that was asked for; that of nobody where it has no entry.
    pub gid: u32,
    /// All its groups.
    pub groups: Vec<u32>,
    /// Its name; the number where it has none.
    pub name: String,
    /// Its home; `/` where it has none.
    pub home: String,
    /// Its shell; `/bin/sh` where it has none.
    pub shell: String,
}

/// Why there is no such account.
#[derive(Debug, thiserror::Error)]
pub enum NoAccount {
    /// The name is not known.
    #[error("there is no user {0:?} on this host")]
    User(String),
    /// The name is not known.
    #[error("there is no group {0:?} on this host")]
    Group(String),
    /// The name service did not answer.
    #[error("the user database could not be read")]
    Io(#[source] io::Error),
}

/// The account of an owner, or of another user and group by name or number.
///
/// # Errors
/// [`NoAccount`] for names that are not known; a number needs no entry.
pub fn find(owner: u32, user: Option<&str>, group: Option<&str>) -> Result<Account, NoAccount> {
    let mut account = match user {
        None => by_uid(owner)?,
        Some(text) => match text.parse() {
            Ok(uid) => by_uid(uid)?,
            Err(_) => match User::from_name(text).map_err(failed)? {
                Some(user) => known(user)?,
                None => return Err(NoAccount::User(text.to_owned())),
            },
        },
    };
    if let Some(text) = group {
        account.gid = gid(text)?;
        if !account.groups.contains(&account.gid) {
            account.groups.push(account.gid);
        }
    }
    Ok(account)
}

fn by_uid(uid: u32) -> Result<Account, NoAccount> {
    match User::from_uid(Uid::from_raw(uid)).map_err(failed)? {
        Some(user) => known(user),
        // The number of a user is not the number of a group: some group may have it that has nothing to do
        // with this user, who may only be unknown because a directory service does not answer.
        None => Ok(Account {
            uid,
            gid: NO_GROUP,
            groups: Vec::new(),
            name: uid.to_string(),
            home: "/".to_owned(),
            shell: "/bin/sh".to_owned(),
        }),
    }
}

fn known(user: User) -> Result<Account, NoAccount> {
    let name = CString::new(user.name.as_str()).map_err(|_| NoAccount::User(user.name.clone()))?;
    let groups = getgrouplist(&name, user.gid).map_err(failed)?;
    Ok(Account {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: groups.into_iter().map(Gid::as_raw).collect(),
        name: user.name,
        home: user.dir.to_string_lossy().into_owned(),
        shell: user.shell.to_string_lossy().into_owned(),
    })
}

fn gid(text: &str) -> Result<u32, NoAccount> {
    if let Ok(gid) = text.parse() {
        return Ok(gid);
    }
    match Group::from_name(text).map_err(failed)? {
        Some(group) => Ok(group.gid.as_raw()),
        None => Err(NoAccount::Group(text.to_owned())),
    }
}

fn failed(error: nix::Error) -> NoAccount {
    NoAccount::Io(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_an_unknown_name_is_named() {
        let root = find(0, None, None).unwrap();
        assert_eq!((root.uid, root.gid, root.name.as_str()), (0, 0, "root"));
        assert_eq!(find(5, Some("root"), Some("0")).unwrap().uid, 0);
        let error = find(0, Some("no-such-user-here"), None).unwrap_err();
        assert!(error.to_string().contains("no-such-user-here"));
        assert!(matches!(find(0, None, Some("no-such-group-here")), Err(NoAccount::Group(_))));
    }

    #[test]
    fn a_number_needs_no_entry() {
        let account = find(4_000_000, None, None).unwrap();
        assert_eq!((account.uid, account.gid, account.home.as_str()), (4_000_000, NO_GROUP, "/"));
        assert!(account.groups.is_empty(), "no group whose number nobody looked up");
    }
}
