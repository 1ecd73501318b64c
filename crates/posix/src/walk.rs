//! The walk along a path (`path_resolution(7)`): folder by folder, through links, until its last name.

use crate::access::{self, RUN, Verdict};
use crate::ways::{Way as Known, Ways};
use crate::who::Going;
use crate::{Errno, Who, below};
use client::Client;
use placement::FileId;
use rustix::thread::CapabilitySet;
use std::ffi::CString;
use wire::{Attributes, Kind, Name, Needs, Refusal};

/// Links that are followed in one path, as Linux bounds it.
const LINKS_MAX: usize = 40;
/// The longest path, bytes (`PATH_MAX`, without its nul).
pub const PATH_BYTES_MAX: usize = 4095;

/// As many folders are in one message at most.
const WALK_MAX: usize = 256;

/// Who has these goes everywhere, and makes and removes names in any folder.
pub const CHANGES_ANY: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// A folder, and how one got there.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Which.
    pub file: FileId,
    /// As it was when it was met; none where nobody looked.
    pub attributes: Option<Attributes>,
    /// Its names from the pool's root on.
    pub names: Vec<Vec<u8>>,
}

impl Folder {
    /// The pool's root.
    pub fn root() -> Self {
        Self { file: FileId::ROOT, attributes: None, names: Vec::new() }
    }
}

/// Where a path leads.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
#[derive(Debug)]
pub enum Place {
    /// Into the pool.
    Pool(Spot),
    /// Out of it, by a link: to this path of the host.
    Host(CString),
}

/// A place in the pool.
#[derive(Debug)]
pub struct Spot {
    /// The folder of the last name.
    pub folder: Folder,
    /// The last name.
    pub last: Last,
    /// What has it, if anything does.
    pub found: Option<Attributes>,
    /// A slash follows, so it must be a folder.
    pub slash: bool,
}

/// The last name of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(Name),
    /// `.`, the root, or an empty path: the folder itself.
    Dot,
    /// `..`.
    DotDot,
}

impl Spot {
    /// What is there.
    ///
    /// # Errors
    /// `ENOENT`, and `ENOTDIR` for a slash behind what is no folder.
    pub fn there(&self) -> Result<&Attributes, Errno> {
        let found = self.found.as_ref().ok_or(Errno::NOENT)?;
        if self.slash && found.kind != Kind::Directory { Err(Errno::NOTDIR) } else { Ok(found) }
    }

    /// The name, for who makes or removes one.
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

    /// Its names from the pool's root on.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let mut names = self.folder.names.clone();
        if let Last::Name(name) = &self.last {
            names.push(name.as_bytes().to_vec());
        }
        names
    }
}

/// What is done with the last name of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is looked up, and a link followed.
    Follow,
    /// It is looked up; a link is what is meant.
    Look,
    /// Nothing: who makes or removes it is told by that whether it is there. With a slash behind it, it is looked up, and a link is what is meant.
    Name,
    /// The same, looked up in any case.
    NameThere,
}

/// Who walks, and what for.
#[derive(Debug)]
pub struct Walker<'a> {
    /// The way to the pool.
    pub client: &'a Client,
    /// Whose rights count.
    pub who: &'a Who,
    /// What stands for the pool in links.
    pub prefix: &'a [u8],
    /// Where ways led before.
    pub ways: &'a Ways,
}

/// What is still to be walked.
struct Way {
    at: Folder,
    /// Names, the next one last.
    names: Vec<Vec<u8>>,
    /// A slash follows the last.
    slash: bool,
    links: usize,
}

/// Where one step led.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
enum Step {
    On,
    End(Place),
}

impl Walker<'_> {
    /// Walks `path` from `start`.
    ///
    /// # Errors
    /// `ENOENT` for a folder on the way that is not there, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `EACCES`.
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

    /// What is where a way led the last time, in one message; none where it leads elsewhere by now, ends at a link, or is to be walked for other reasons.
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

    /// The names that are left, one by one.
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

    /// Goes through folders that surely let this user through, many in one message; a link among them is left to be met.
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

    /// One name further.
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

    /// The end, where no name is left.
    async fn arrived(&self, way: &mut Way, last: Last) -> Result<Place, Errno> {
        let found = match way.at.attributes {
            Some(found) => found,
            None => self.look(&mut way.at).await?,
        };
        let folder = std::mem::replace(&mut way.at, Folder::root());
        Ok(Place::Pool(Spot { folder, last, found: Some(found), slash: way.slash }))
    }

    /// The folder above one; above the pool's root is nothing.
    async fn above(&self, mut at: Folder) -> Result<Folder, Errno> {
        if at.file != FileId::ROOT {
            at.file = self.client.parent(at.file).await.map_err(|refusal| crate::errno(&refusal))?;
            at.names.pop();
        }
        Ok(Folder { attributes: None, ..at })
    }

    /// Whether this user may walk through a folder.
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

    /// The attributes of a folder, asked if nobody has.
    ///
    /// # Errors
    /// `ENOENT` where it was removed.
    pub async fn folder(&self, at: &Folder) -> Result<Attributes, Errno> {
        match at.attributes {
            Some(found) => Ok(found),
            None => self.client.stat(at.file).await.map_err(|refusal| crate::errno(&refusal)),
        }
    }

    /// Whether this user may do that with it; its ACL is asked only where it decides.
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

    /// Whether this user may make or remove names in the folder of a spot; its attributes, for who may not do that in any folder.
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

    /// What has the name of a spot that nobody has looked up.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn look_up(&self, spot: &Spot) -> Result<Attributes, Errno> {
        let Last::Name(name) = &spot.last else { return self.folder(&spot.folder).await };
        self.client.lookup(spot.folder.file, name).await.map_err(|refusal| crate::errno(&refusal))
    }

    /// Whether this user may make and remove names in any folder.
    pub fn changes_any(&self) -> bool {
        self.who.can(CHANGES_ANY)
    }
}

impl Way {
    /// The names of a path, to be walked before those that are left.
    fn push(&mut self, path: &[u8]) {
        let at = self.names.len();
        self.names.extend(crate::prefix::names(path).map(<[u8]>::to_vec));
        self.names[at..].reverse();
    }

    /// The path of the host that a link leads to.
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
