//! Path resolution (`path_resolution(7)`): directory by directory, through symlinks, up to the last
//! component.

use crate::access::{self, AccessDecision, EXECUTE};
use crate::caller::TraversalCheck;
use crate::path_key::{PathKey, hint};
use crate::{Caller, Errno, strip_prefix};
use client::{Client, PathCache, WalkedPath};
use placement::FileId;
use rustix::thread::CapabilitySet;
use std::ffi::CString;
use wire::{Attributes, DirAccess, Kind, Name, Refusal};

/// Symlinks that are followed in one path; the limit of Linux.
const LINKS_MAX: usize = 40;
/// Longest path, bytes (`PATH_MAX` without its nul).
pub const PATH_BYTES_MAX: usize = 4095;

/// Capabilities that together permit creating and removing names in any directory.
pub const MODIFY_ANY: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// Directory, and the names that led to it.
#[derive(Debug, Clone)]
pub struct ResolvedDirectory {
    /// File id.
    pub file: FileId,
    /// Attributes as of the walk; `None` if they were not queried.
    pub attributes: Option<Attributes>,
    /// Names from the pool's root on.
    pub names: Vec<Vec<u8>>,
}

impl ResolvedDirectory {
    /// Returns the pool's root.
    pub fn root() -> Self {
        Self { file: FileId::ROOT, attributes: None, names: Vec::new() }
    }
}

/// Result of a path resolution.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
#[derive(Debug)]
pub enum Destination {
    /// Path in the pool.
    Pool(ResolvedPath),
    /// Path of the host that a symlink led to.
    Host(CString),
}

/// Resolved path in the pool.
#[derive(Debug)]
pub struct ResolvedPath {
    /// Directory of the last component.
    pub directory: ResolvedDirectory,
    /// Last component.
    pub last: LastComponent,
    /// Attributes of the entry, if it exists and was looked up.
    pub found: Option<Attributes>,
    /// True if a slash follows, so that it must be a directory.
    pub slash: bool,
}

/// Last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastComponent {
    /// A name.
    Name(Name),
    /// `.`, the root, or an empty path: the directory itself.
    Dot,
    /// `..`.
    DotDot,
}

impl ResolvedPath {
    /// Returns the attributes of the entry.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, `ENOTDIR` if a slash follows and it is not a directory.
    pub fn existing(&self) -> Result<&Attributes, Errno> {
        let found = self.found.as_ref().ok_or(Errno::NOENT)?;
        if self.slash && found.kind != Kind::Directory { Err(Errno::NOTDIR) } else { Ok(found) }
    }

    /// Returns the name to create or remove.
    ///
    /// # Errors
    /// `dot` for `.` and the root, `dots` for `..`.
    pub fn name(&self, dot: Errno, dots: Errno) -> Result<&Name, Errno> {
        match &self.last {
            LastComponent::Name(name) => Ok(name),
            LastComponent::Dot => Err(dot),
            LastComponent::DotDot => Err(dots),
        }
    }

    /// Returns the names from the pool's root on.
    pub fn names(&self) -> Vec<Vec<u8>> {
        let mut names = self.directory.names.clone();
        if let LastComponent::Name(name) = &self.last {
            names.push(name.as_bytes().to_vec());
        }
        names
    }
}

/// Treatment of a path's last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastMode {
    /// Look it up, and follow a symlink.
    Follow,
    /// Look it up, and do not follow a symlink.
    NoFollow,
    /// Do not look it up: the create or unlink itself reports whether it exists. Look it up if a
    /// slash follows, without following a symlink.
    Parent,
    /// Look it up in any case, for a create or unlink, and do not follow a symlink.
    ParentAndEntry,
}

/// Context of a path resolution.
#[derive(Debug)]
pub struct Resolver<'a> {
    /// Client of the pool.
    pub client: &'a Client,
    /// User whose permissions are checked.
    pub caller: &'a Caller,
    /// Prefix that stands for the pool in targets of symlinks.
    pub prefix: &'a [u8],
    /// Path cache.
    pub path_cache: &'a PathCache,
}

/// State of a path resolution.
struct ResolveState {
    at: ResolvedDirectory,
    /// Names that remain to be resolved, in reverse order.
    names: Vec<Vec<u8>>,
    /// True if a slash follows the last name.
    slash: bool,
    links: usize,
}

/// Result of one step.
#[expect(clippy::large_enum_variant, reason = "one for a call, on its stack")]
enum Step {
    Continue,
    Done(Destination),
}

impl Resolver<'_> {
    /// Resolves `path` from `start`.
    ///
    /// # Errors
    /// `ENOENT` if a directory on the path does not exist, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`,
    /// `EACCES`.
    pub async fn resolve(&self, start: ResolvedDirectory, path: &[u8], mode: LastMode) -> Result<Destination, Errno> {
        let traversal = self.caller.traversal_check(DirAccess::Lookup, CapabilitySet::DAC_READ_SEARCH);
        let key = PathKey::parse(start.file, path);
        if let Some((key, traversal)) = key.as_ref().zip(traversal.as_ref())
            && let Some(resolved) = self.lookup_cached((key, traversal), &start, mode).await?
        {
            return Ok(Destination::Pool(resolved));
        }
        let mut state = ResolveState { at: start, names: Vec::new(), slash: path.last() == Some(&b'/'), links: 0 };
        state.push(path);
        if let Some(traversal) = &traversal
            && let Some(walked) = self.resolve_ahead(&mut state, traversal).await?
            && let Some(key) = key
        {
            self.path_cache.insert(key.directory, walked);
        }
        self.resolve_each(&mut state, mode).await
    }

    /// Looks up the last name in the cached directory of the path, in one message if all of it is
    /// on one node. Returns `None` if the cache entry is missing or stale, if a symlink is to be
    /// followed, or if `mode` needs no lookup.
    async fn lookup_cached(
        &self,
        (key, traversal): (&PathKey, &TraversalCheck),
        start: &ResolvedDirectory,
        mode: LastMode,
    ) -> Result<Option<ResolvedPath>, Errno> {
        let Some(path) = self.path_cache.get(&key.directory).filter(|_| mode != LastMode::Parent || key.slash) else {
            return Ok(None);
        };
        let found = match self.client.lookup_at_hint(hint(&path, traversal), &key.last).await {
            Ok(Some(found)) => Some(found),
            Ok(None) => {
                self.path_cache.remove(&key.directory);
                return Ok(None);
            }
            Err(Refusal::NotFound(_)) => None,
            Err(refusal) => return Err(crate::errno(&refusal)),
        };
        let follows = mode == LastMode::Follow || mode == LastMode::NoFollow && key.slash;
        if follows && found.is_some_and(|found| found.kind == Kind::Symlink) {
            return Ok(None);
        }
        let names = start.names.iter().cloned().chain(key.directories()).collect();
        let directory = ResolvedDirectory { file: path.directory(), attributes: None, names };
        Ok(Some(ResolvedPath { directory, last: LastComponent::Name(key.last.clone()), found, slash: key.slash }))
    }

    /// Resolves the remaining names one by one.
    async fn resolve_each(&self, state: &mut ResolveState, mode: LastMode) -> Result<Destination, Errno> {
        loop {
            let Some(name) = state.names.pop() else { return self.finish(state, LastComponent::Dot).await };
            let last = state.names.is_empty();
            match name.as_slice() {
                b"." => {
                    self.check_search(&mut state.at).await?;
                    if last {
                        return self.finish(state, LastComponent::Dot).await;
                    }
                }
                b".." => {
                    self.check_search(&mut state.at).await?;
                    state.at = self.parent(std::mem::replace(&mut state.at, ResolvedDirectory::root())).await?;
                    if last {
                        return self.finish(state, LastComponent::DotDot).await;
                    }
                }
                _ => {
                    if let Step::Done(destination) = self.step(state, &name, last, mode).await? {
                        return Ok(destination);
                    }
                }
            }
        }
    }

    /// Resolves the leading directories, in one message for each node on the path, as far as they
    /// surely let this user pass. If one of them is no directory, leaves it to
    /// [`Self::resolve_each`]. Returns the path to the last component's directory.
    async fn resolve_ahead(
        &self,
        state: &mut ResolveState,
        traversal: &TraversalCheck,
    ) -> Result<Option<WalkedPath>, Errno> {
        let directories = state.names.get(1..).unwrap_or_default().iter().rev();
        let plain = directories.take_while(|name| name.as_slice() != b"..");
        let Ok(directories) = plain.map(|name| Name::new(name)).collect::<Result<Vec<_>, _>>() else {
            return Ok(None);
        };
        let path = match self.client.walk_path(state.at.file, directories, traversal.credentials()).await {
            Err(Refusal::NotDirectory(_)) => return Ok(None),
            path => path.map_err(|refusal| crate::errno(&refusal))?,
        };
        let (resolved, _) = path.split_names();
        if !resolved.is_empty() {
            state.names.truncate(state.names.len() - resolved.len());
            state.at.names.extend(resolved.iter().map(|name| name.as_bytes().to_vec()));
            (state.at.file, state.at.attributes) = (path.directory(), None);
        }
        Ok(Some(path))
    }

    /// Resolves one name.
    async fn step(&self, state: &mut ResolveState, name: &[u8], last: bool, mode: LastMode) -> Result<Step, Errno> {
        self.check_search(&mut state.at).await?;
        let name = Name::new(name).map_err(|refusal| crate::errno(&refusal))?;
        if last && mode == LastMode::Parent && !state.slash {
            let directory = std::mem::replace(&mut state.at, ResolvedDirectory::root());
            return Ok(Step::Done(Destination::Pool(ResolvedPath {
                directory,
                last: LastComponent::Name(name),
                found: None,
                slash: false,
            })));
        }
        let found = match self.client.lookup(state.at.file, &name).await {
            Err(Refusal::NotFound(_)) if last => None,
            Err(refusal) => return Err(crate::errno(&refusal)),
            Ok(found) => Some(found),
        };
        match found {
            Some(link)
                if link.kind == Kind::Symlink
                    && (!last || mode == LastMode::Follow || mode == LastMode::NoFollow && state.slash) =>
            {
                return self.follow(state, &link).await;
            }
            Some(directory) if directory.kind == Kind::Directory && !last => {
                state.at.names.push(name.as_bytes().to_vec());
                state.at.file = directory.file;
                state.at.attributes = Some(directory);
                return Ok(Step::Continue);
            }
            _ if !last => return Err(Errno::NOTDIR),
            _ => {}
        }
        let directory = std::mem::replace(&mut state.at, ResolvedDirectory::root());
        Ok(Step::Done(Destination::Pool(ResolvedPath {
            directory,
            last: LastComponent::Name(name),
            found,
            slash: state.slash,
        })))
    }

    async fn follow(&self, state: &mut ResolveState, link: &Attributes) -> Result<Step, Errno> {
        state.links += 1;
        if state.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = self.client.read_link(link.file).await.map_err(|refusal| crate::errno(&refusal))?;
        if state.names.is_empty() && target.last() == Some(&b'/') {
            state.slash = true;
        }
        if target.first() == Some(&b'/') {
            let Some(rest) = strip_prefix(self.prefix, &target) else {
                return state.host_path(&target).map(Step::Done);
            };
            state.at = ResolvedDirectory::root();
            state.push(rest);
        } else {
            state.push(&target);
        }
        Ok(Step::Continue)
    }

    /// Ends the resolution when no name is left.
    async fn finish(&self, state: &mut ResolveState, last: LastComponent) -> Result<Destination, Errno> {
        let found = match state.at.attributes {
            Some(found) => found,
            None => self.fetch_attributes(&mut state.at).await?,
        };
        let directory = std::mem::replace(&mut state.at, ResolvedDirectory::root());
        Ok(Destination::Pool(ResolvedPath { directory, last, found: Some(found), slash: state.slash }))
    }

    /// Returns the parent directory. The pool's root is its own parent.
    async fn parent(&self, mut at: ResolvedDirectory) -> Result<ResolvedDirectory, Errno> {
        if at.file != FileId::ROOT {
            at.file = self.client.parent(at.file).await.map_err(|refusal| crate::errno(&refusal))?;
            at.names.pop();
        }
        Ok(ResolvedDirectory { attributes: None, ..at })
    }

    /// Checks whether this user may search a directory.
    async fn check_search(&self, at: &mut ResolvedDirectory) -> Result<(), Errno> {
        if self.caller.can(CapabilitySet::DAC_READ_SEARCH) {
            return Ok(());
        }
        let found = match at.attributes {
            Some(found) => found,
            None => self.fetch_attributes(at).await?,
        };
        self.check_access(&found, EXECUTE).await
    }

    async fn fetch_attributes(&self, at: &mut ResolvedDirectory) -> Result<Attributes, Errno> {
        let found = self.client.stat(at.file).await.map_err(|refusal| crate::errno(&refusal))?;
        at.attributes = Some(found);
        Ok(found)
    }

    /// Returns the attributes of a directory, and queries them if necessary.
    ///
    /// # Errors
    /// `ENOENT` if it was removed.
    pub async fn attributes(&self, at: &ResolvedDirectory) -> Result<Attributes, Errno> {
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
    pub async fn check_access(&self, file: &Attributes, wants: u32) -> Result<(), Errno> {
        let allowed = match access::check_mode(file, self.caller, wants) {
            AccessDecision::Allowed => true,
            AccessDecision::Denied => false,
            AccessDecision::ByAcl => {
                const ACL: &[u8] = b"system.posix_acl_access";
                match self.client.xattr(file.file, bytes::Bytes::from_static(ACL)).await {
                    Ok(acl) => access::check_acl(file, Some(&acl), self.caller, wants),
                    Err(Refusal::NoAttribute(_)) => access::check_acl(file, None, self.caller, wants),
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
    pub async fn check_modify(&self, directory: &ResolvedDirectory) -> Result<Option<Attributes>, Errno> {
        if self.can_modify_any() {
            return Ok(None);
        }
        let found = self.attributes(directory).await?;
        self.check_access(&found, access::WRITE | EXECUTE).await?;
        Ok(Some(found))
    }

    /// Looks up the entry of a resolved path that has not been looked up.
    ///
    /// # Errors
    /// `ENOENT`.
    pub async fn look_up(&self, resolved: &ResolvedPath) -> Result<Attributes, Errno> {
        let LastComponent::Name(name) = &resolved.last else { return self.attributes(&resolved.directory).await };
        self.client.lookup(resolved.directory.file, name).await.map_err(|refusal| crate::errno(&refusal))
    }

    /// Returns whether this user may create and remove names in any directory.
    pub fn can_modify_any(&self) -> bool {
        self.caller.can(MODIFY_ANY)
    }
}

impl ResolveState {
    /// Prepends the names of a path to the remaining ones. A `.` says something only at the end:
    /// elsewhere the next name needs the same directory and the same permission.
    fn push(&mut self, path: &[u8]) {
        for name in wire::path_names(path).rev() {
            if name != b"." || self.names.is_empty() {
                self.names.push(name.to_vec());
            }
        }
    }

    /// Returns the path of the host that a symlink leads to, with the remaining names.
    fn host_path(&self, target: &[u8]) -> Result<Destination, Errno> {
        let mut path = target.to_vec();
        for name in self.names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if self.slash {
            path.push(b'/');
        }
        CString::new(path).map(Destination::Host).map_err(|_| Errno::INVAL)
    }
}
