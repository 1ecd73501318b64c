//! Path resolution (`path_resolution(7)`): directory by directory, through symlinks, up to the last
//! component.

use crate::access::{self, RUN, Verdict};
use crate::ways::{Way as Known, Ways};
use crate::who::Going;
use crate::{Errno, Who, below};
use client::Client;
use placement::FileId;
use rustix::thread::CapabilitySet;
use std::ffi::CString;
use wire::{Attributes, Kind, Name, Needs, Refusal};

/// Symlinks that are followed in one path; the limit of Linux.
const LINKS_MAX: usize = 40;
/// Longest path, bytes (`PATH_MAX` without its nul).
pub const PATH_BYTES_MAX: usize = 4095;

/// Maximum number of directories in one message.
const WALK_MAX: usize = 256;

/// Capabilities that together permit creating and removing names in any directory.
pub const CHANGES_ANY: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// Directory, and the names that led to it.
#[derive(Debug, Clone)]
pub struct Folder {
    /// File id.
    pub file: FileId,
    /// Attributes as of the walk; `None` if they were not queried.
    pub attributes: Option<Attributes>,
    /// Names from the pool's root on.
    pub names: Vec<Vec<u8>>,
}

impl Folder {
    /// Returns the pool's root.
    pub fn root() -> Self {
        Self { file: FileId::ROOT, attributes: None, names: Vec::new() }
    }
}

/// Result of a path resolution.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
#[derive(Debug)]
pub enum Place {
    /// Path in the pool.
    Pool(Spot),
    /// Path of the host that a symlink led to.
    Host(CString),
}

/// Resolved path in the pool.
#[derive(Debug)]
pub struct Spot {
    /// Directory of the last component.
    pub folder: Folder,
    /// Last component.
    pub last: Last,
    /// Attributes of the entry, if it exists and was looked up.
    pub found: Option<Attributes>,
    /// True if a slash follows, so that it must be a directory.
    pub slash: bool,
}

/// Last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(Name),
    /// `.`, the root, or an empty path: the directory itself.
    Dot,
    /// `..`.
    DotDot,
}

impl Spot {
    /// Returns the attributes of the entry.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, `ENOTDIR` if a slash follows and it is not a directory.
    pub fn there(&self) -> Result<&Attributes, Errno> {
        let found = self.found.as_ref().ok_or(Errno::NOENT)?;
        if self.slash && found.kind != Kind::Directory { Err(Errno::NOTDIR) } else { Ok(found) }
    }

    /// Returns the name to create or remove.
    ///
    /// # Errors
    /// `dot` for `.` and the root, `dots` for `..`.
    pub fn name(&self, dot: Errno, dots: Errno) -> Result<&Name, Errno> {
        match &self.last {
            Last::Name(name) => Ok(name),
            Last::Dot => Err(dot),
            Last::DotDot => Err(dots),
        }
    }

    /// Returns the names from the pool's root on.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let mut names = self.folder.names.clone();
        if let Last::Name(name) = &self.last {
            names.push(name.as_bytes().to_vec());
        }
        names
    }
}

/// Treatment of a path's last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Look it up, and follow a symlink.
    Follow,
    /// Look it up, and do not follow a symlink.
    Look,
    /// Do not look it up: the create or unlink itself reports whether it exists. Look it up if a
    /// slash follows, without following a symlink.
    Name,
    /// Look it up in any case, for a create or unlink, and do not follow a symlink.
    NameThere,
}

/// Context of a path resolution.
#[derive(Debug)]
pub struct Walker<'a> {
    /// Client of the pool.
    pub client: &'a Client,
    /// User whose permissions are checked.
    pub who: &'a Who,
    /// Prefix that stands for the pool in targets of symlinks.
    pub prefix: &'a [u8],
    /// Path cache.
    pub ways: &'a Ways,
}

/// State of a path resolution.
struct Way {
    at: Folder,
    /// Remaining names in reverse order.
    names: Vec<Vec<u8>>,
    /// True if a slash follows the last name.
    slash: bool,
    links: usize,
}

/// Result of one step.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
enum Step {
    On,
    End(Place),
}

impl Walker<'_> {
    /// Resolves `path` from `start`.
    ///
    /// # Errors
    /// `ENOENT` if a directory on the path does not exist, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`,
    /// `EACCES`.
    pub async fn walk(&self, start: Folder, path: &[u8], end: End) -> Result<Place, Errno> {
        let going = self.who.going(Needs::Pass, CapabilitySet::DAC_READ_SEARCH);
        let known = Known::of(start.file, path);
        if let Some((known, going)) = known.as_ref().zip(going.as_ref())
            && let Some(spot) = self.go_there((known, going), &start, end).await?
        {
            return Ok(Place::Pool(spot));
        }
        let mut way = Way { at: start, names: Vec::new(), slash: path.last() == Some(&b'/'), links: 0 };
        way.push(path);
        if let Some(going) = &going {
            self.run_ahead(&mut way, going).await?;
        }
        let place = self.step_by_step(&mut way, end).await?;
        if let (Place::Pool(Spot { folder, last: Last::Name(_), .. }), Some(known), 0) = (&place, known, way.links) {
            self.ways.learn(known, folder.file);
        }
        Ok(place)
    }

    /// Looks up the last name in the cached directory of the path, in one message. Returns `None`
    /// if the cache entry is missing or stale, if a symlink is to be followed, or if `end` needs no
    /// lookup.
    async fn go_there(
        &self,
        (known, going): (&Known, &Going),
        start: &Folder,
        end: End,
    ) -> Result<Option<Spot>, Errno> {
        let Some(directory) = self.ways.known(known).filter(|_| end != End::Name || known.slash) else {
            return Ok(None);
        };
        let found = match self.client.lookup_below(known.below(directory, going), &known.last).await {
            Ok(Some(found)) => Some(found),
            Ok(None) => {
                self.ways.forget(known);
                return Ok(None);
            }
            Err(Refusal::NotFound(_)) => None,
            Err(refusal) => return Err(crate::errno(&refusal)),
        };
        let follows = end == End::Follow || end == End::Look && known.slash;
        if follows && found.is_some_and(|found| found.kind == Kind::Symlink) {
            return Ok(None);
        }
        let names = start.names.iter().cloned().chain(known.folders()).collect();
        let folder = Folder { file: directory, attributes: None, names };
        Ok(Some(Spot { folder, last: Last::Name(known.last.clone()), found, slash: known.slash }))
    }

    /// Resolves the remaining names one by one.
    async fn step_by_step(&self, way: &mut Way, end: End) -> Result<Place, Errno> {
        loop {
            let Some(name) = way.names.pop() else { return self.arrived(way, Last::Dot).await };
            let last = way.names.is_empty();
            match name.as_slice() {
                b"." => {
                    self.may_pass(&mut way.at).await?;
                    if last {
                        return self.arrived(way, Last::Dot).await;
                    }
                }
                b".." => {
                    self.may_pass(&mut way.at).await?;
                    way.at = self.above(std::mem::replace(&mut way.at, Folder::root())).await?;
                    if last {
                        return self.arrived(way, Last::DotDot).await;
                    }
                }
                _ => {
                    if let Step::End(place) = self.step(way, &name, last, end).await? {
                        return Ok(place);
                    }
                }
            }
        }
    }

    /// Resolves up to 256 leading directories in one message, as far as they surely let this user
    /// pass. If one of them is no directory, resolves none and leaves all to
    /// [`Self::step_by_step`].
    async fn run_ahead(&self, way: &mut Way, going: &Going) -> Result<(), Errno> {
        let folders = way.names.get(1..).unwrap_or_default().iter().rev().take(WALK_MAX);
        let plain = folders.take_while(|name| name.as_slice() != b"." && name.as_slice() != b"..");
        let Ok(folders) = plain.map(|name| Name::new(name)).collect::<Result<Vec<_>, _>>() else { return Ok(()) };
        if folders.is_empty() {
            return Ok(());
        }
        let walked = match self.client.walk_down(way.at.file, &folders, going.who()).await {
            Err(Refusal::NotDirectory(_)) => return Ok(()),
            walked => walked.map_err(|refusal| crate::errno(&refusal))?,
        };
        let came = folders.len() - walked.1 as usize;
        if came > 0 {
            way.names.truncate(way.names.len() - came);
            way.at.names.extend(folders[..came].iter().map(|name| name.as_bytes().to_vec()));
            (way.at.file, way.at.attributes) = (walked.0, None);
        }
        Ok(())
    }

    /// Resolves one name.
    async fn step(&self, way: &mut Way, name: &[u8], last: bool, end: End) -> Result<Step, Errno> {
        self.may_pass(&mut way.at).await?;
        let name = Name::new(name).map_err(|refusal| crate::errno(&refusal))?;
        if last && end == End::Name && !way.slash {
            let folder = std::mem::replace(&mut way.at, Folder::root());
            return Ok(Step::End(Place::Pool(Spot { folder, last: Last::Name(name), found: None, slash: false })));
        }
        let found = match self.client.lookup(way.at.file, &name).await {
            Err(Refusal::NotFound(_)) if last => None,
            Err(refusal) => return Err(crate::errno(&refusal)),
            Ok(found) => Some(found),
        };
        match found {
            Some(link)
                if link.kind == Kind::Symlink && (!last || end == End::Follow || end == End::Look && way.slash) =>
            {
                return self.follow(way, &link).await;
            }
            Some(folder) if folder.kind == Kind::Directory && !last => {
                way.at.names.push(name.as_bytes().to_vec());
                way.at.file = folder.file;
                way.at.attributes = Some(folder);
                return Ok(Step::On);
            }
            _ if !last => return Err(Errno::NOTDIR),
            _ => {}
        }
        let folder = std::mem::replace(&mut way.at, Folder::root());
        Ok(Step::End(Place::Pool(Spot { folder, last: Last::Name(name), found, slash: way.slash })))
    }

    async fn follow(&self, way: &mut Way, link: &Attributes) -> Result<Step, Errno> {
        way.links += 1;
        if way.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = self.client.read_link(link.file).await.map_err(|refusal| crate::errno(&refusal))?;
        if way.names.is_empty() && target.last() == Some(&b'/') {
            way.slash = true;
        }
        if target.first() == Some(&b'/') {
            let Some(rest) = below(self.prefix, &target) else { return way.outside(&target).map(Step::End) };
            way.at = Folder::root();
            way.push(rest);
        } else {
            way.push(&target);
        }
        Ok(Step::On)
    }

    /// Ends the resolution when no name is left.
    async fn arrived(&self, way: &mut Way, last: Last) -> Result<Place, Errno> {
        let found = match way.at.attributes {
            Some(found) => found,
            None => self.look(&mut way.at).await?,
        };
        let folder = std::mem::replace(&mut way.at, Folder::root());
        Ok(Place::Pool(Spot { folder, last, found: Some(found), slash: way.slash }))
    }

    /// Returns the parent directory. The pool's root is its own parent.
    async fn above(&self, mut at: Folder) -> Result<Folder, Errno> {
        if at.file != FileId::ROOT {
            at.file = self.client.parent(at.file).await.map_err(|refusal| crate::errno(&refusal))?;
            at.names.pop();
        }
        Ok(Folder { attributes: None, ..at })
    }

    /// Checks whether this user may search a directory.
    async fn may_pass(&self, at: &mut Folder) -> Result<(), Errno> {
        if self.who.can(CapabilitySet::DAC_READ_SEARCH) {
            return Ok(());
        }
        let found = match at.attributes {
            Some(found) => found,
            None => self.look(at).await?,
        };
        self.may(&found, RUN).await
    }

    async fn look(&self, at: &mut Folder) -> Result<Attributes, Errno> {
        let found = self.client.stat(at.file).await.map_err(|refusal| crate::errno(&refusal))?;
        at.attributes = Some(found);
        Ok(found)
    }

    /// Returns the attributes of a directory, and queries them if necessary.
    ///
    /// # Errors
    /// `ENOENT` if it was removed.
    pub async fn folder(&self, at: &Folder) -> Result<Attributes, Errno> {
        match at.attributes {
            Some(found) => Ok(found),
            None => self.client.stat(at.file).await.map_err(|refusal| crate::errno(&refusal)),
        }
    }

    /// Checks whether this user may access a file. Its ACL is read only if the decision depends on
    /// it.
    ///
    /// # Errors
    /// `EACCES`.
    pub async fn may(&self, of: &Attributes, wants: u32) -> Result<(), Errno> {
        let allowed = match access::judge(of, self.who, wants) {
            Verdict::Allowed => true,
            Verdict::Denied => false,
            Verdict::ByAcl => {
                const ACL: &[u8] = b"system.posix_acl_access";
                match self.client.xattr(of.file, bytes::Bytes::from_static(ACL)).await {
                    Ok(acl) => access::judge_by(of, Some(&acl), self.who, wants),
                    Err(Refusal::NoAttribute(_)) => access::judge_by(of, None, self.who, wants),
                    Err(refusal) => return Err(crate::errno(&refusal)),
                }
            }
        };
        if allowed { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Checks whether this user may create or remove names in a directory. Returns the directory's
    /// attributes, or `None` if the user's capabilities permit it in any directory.
    ///
    /// # Errors
    /// `EACCES`.
    pub async fn may_change(&self, folder: &Folder) -> Result<Option<Attributes>, Errno> {
        if self.changes_any() {
            return Ok(None);
        }
        let found = self.folder(folder).await?;
        self.may(&found, access::WRITE | RUN).await?;
        Ok(Some(found))
    }

    /// Looks up the entry of a resolved path that has not been looked up.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn look_up(&self, spot: &Spot) -> Result<Attributes, Errno> {
        let Last::Name(name) = &spot.last else { return self.folder(&spot.folder).await };
        self.client.lookup(spot.folder.file, name).await.map_err(|refusal| crate::errno(&refusal))
    }

    /// Returns whether this user may create and remove names in any directory.
    pub fn changes_any(&self) -> bool {
        self.who.can(CHANGES_ANY)
    }
}

impl Way {
    /// Prepends the names of a path to the remaining ones.
    fn push(&mut self, path: &[u8]) {
        let at = self.names.len();
        self.names.extend(crate::prefix::names(path).map(<[u8]>::to_vec));
        self.names[at..].reverse();
    }

    /// Returns the path of the host that a symlink leads to, with the remaining names.
    fn outside(&self, target: &[u8]) -> Result<Place, Errno> {
        let mut path = target.to_vec();
        for name in self.names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if self.slash {
            path.push(b'/');
        }
        CString::new(path).map(Place::Host).map_err(|_| Errno::INVAL)
    }
}
