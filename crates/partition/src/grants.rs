//! What kernels keep, and who is to be told when it changes.
//!
//! A *watcher* is a session with a kernel behind it that keeps what it is answered. What an answer lets it keep is a **grant**, a
//! bit beside the inode; a change by anybody else takes the bits of the others back and notes them, and whoever holds the
//! partition's lock collects the notes ([`Partition::take_notes`]), has the watchers told, and answers the change after that.
//!
//! ```text
//!   answer                               lets the asker keep           taken back by others'
//!   Found, Attributes, a new Opened      attributes of the inode       Partition::edit, drop_name, has_moved, a moved read time
//!   Found, NotFound of a Lookup,         names of the directory,       Partition::edit_entries
//!     Entries, any entry it made           and their absence
//!   Content, any write                   bytes                         Inode::touch within an edit
//! ```
//!
//! - A kernel knows what it asked for, so its own changes take nothing from it: FUSE drops the times and sizes of directories and
//!   files it changed, and counts their links. It cannot know that a write took set-id bits away: then its own bit goes too.
//! - Answers to `Change` and to a link grant nothing: the kernel takes their attributes whatever was recalled since it asked.
//! - A look notes what it has seen, with no one to tell: where an earlier recall of that is still on its way to any kernel, the
//!   look's answer waits for it too, or its reader could then see less through another kernel, or its own.
//! - Bits stay when a kernel forgets by itself. A recall too many costs a message; one too few would be a lie.
//!
//! A whole file is read and written past the node by whoever has it open, and its kernel alone knows of that. So its attributes are
//! granted to the only session that has it open, or to anybody while nobody has; an open by another takes them back. Stores into a
//! mapping not even that kernel knows of: as long as there may be one, the node lets nobody keep what the extent says. Its bytes no
//! kernel keeps: faces read it through its backing, or directly.
//!
//! The same bits tell which kernel *knows* an inode; what that is for is told in `kept.rs`.
//!
//! What it does not do: tell anybody, wait, or know kernels.

use crate::{Partition, inode::Inode, kept::Kept};
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{Answer, Attributes, Command, Outcome, Owner, Recall, Refusal, Session};

/// A session that keeps what it is answered, as a small number: below [`Watcher::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher(u8);

impl Watcher {
    /// How many there may be at one time.
    pub const MAX: usize = 16;

    /// The watcher of this number, if there may be one.
    pub fn new(number: usize) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < Self::MAX).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// Some watchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchers(u16);

const _: () = assert!(Watcher::MAX <= u16::BITS as usize);

impl Watchers {
    /// Nobody.
    pub const NONE: Self = Self(0);
    /// All that there may be.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub fn has(self, watcher: Watcher) -> bool {
        self.0 & Self::of(watcher).0 != 0
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, watcher: Watcher) -> Self {
        Self(self.0 | Self::of(watcher).0)
    }

    /// These but that one.
    #[must_use]
    pub fn without(self, watcher: Watcher) -> Self {
        Self(self.0 & !Self::of(watcher).0)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Watcher> {
        (0..Watcher::MAX).filter_map(Watcher::new).filter(move |watcher| self.has(*watcher))
    }

    /// These and those.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are among both.
    #[must_use]
    pub fn both(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    fn of(watcher: Watcher) -> Self {
        Self(1 << watcher.0)
    }

    /// Takes those among `others` out, and says which they were.
    fn take(&mut self, others: Self) -> Self {
        let taken = Self(self.0 & others.0);
        self.0 &= !others.0;
        taken
    }
}

/// Who asks, as far as grants are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The session.
    pub session: Session,
    /// When it keeps what it is answered.
    pub watcher: Option<Watcher>,
    /// All others that do.
    pub others: Watchers,
    /// Of all, those whose kernels can be told to let go of what was removed.
    pub pruning: Watchers,
}

impl Asker {
    /// A session where nobody watches.
    pub fn alone(session: Session) -> Self {
        Self { session, watcher: None, others: Watchers::NONE, pruning: Watchers::NONE }
    }
}

impl Asker {
    /// The same for what no kernel asks: its session's own does not know of it either.
    fn beside_its_kernel(self) -> Self {
        let others = self.watcher.map_or(self.others, |own| self.others.with(own));
        Self { watcher: None, others, ..self }
    }
}

impl Default for Asker {
    fn default() -> Self {
        Self::alone(Session::NONE)
    }
}

/// Something that changed, or that a look has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// What.
    pub recall: Recall,
    /// Who had been granted it, and is to be told.
    pub tell: Watchers,
    /// It was only looked at. The answer goes past what the looker's own kernel keeps, so that one must have forgotten what it keeps
    /// from before: else the next look, which it answers itself, would show less.
    pub seen: bool,
}

impl Note {
    pub(crate) fn changed(recall: Recall, tell: Watchers) -> Self {
        Self { recall, tell, seen: false }
    }
}

/// Who may keep what of an inode, or knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    attributes: Watchers,
    /// Bytes of a file, names of a directory.
    content: Watchers,
    /// Whose kernel knows the inode, or did not long ago.
    pub(crate) known: Watchers,
    /// Whose kernels may believe other names of it than it has: others made it, moved it, or took a name away.
    pub(crate) astray: Watchers,
    /// Bytes or entries were touched in the edit that is under way,
    touched: bool,
    /// or what kernels keep with the attributes and `stat` does not show: access rules, and that others read past the node.
    outdated: bool,
}

impl Granted {
    /// Of a fragment that comes to be: who keeps what of its directory is not known there, so all are told of what changes.
    pub fn of_fragment() -> Self {
        Self { attributes: Watchers::ALL, content: Watchers::ALL, ..Self::default() }
    }

    /// What others keep of the attributes is not so any more, though these look the same: access rules have changed, or the file
    /// will be read past the node from now on.
    pub fn outdate(&mut self) {
        self.outdated = true;
    }

    /// Bytes or entries change.
    pub fn touch(&mut self) {
        self.touched = true;
    }
}

/// A partition's part in this.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Grants {
    pub(crate) kept: Kept,
    /// Whose command is being done.
    #[serde(skip)]
    pub(crate) asker: Asker,
    /// Whether that is to change mode or owner, so that its kernel knows.
    #[serde(skip)]
    access_asked: bool,
    #[serde(skip)]
    pub(crate) notes: Vec<Note>,
}

/// What an inode showed before a change, as far as it matters.
pub struct Shown {
    access: (u32, Owner),
    /// When others may keep them.
    attributes: Option<Attributes>,
}

impl Grants {
    /// What an inode shows, before it is changed.
    pub fn shown(&self, inode: &Inode) -> Shown {
        let attributes = (!self.asker.others.is_empty()).then(|| inode.attributes(FileId::ROOT));
        Shown { access: inode.access(), attributes }
    }

    /// An inode has changed, if it shows anything else than before. What a fragment shows, its directory does.
    pub fn changed(&mut self, file: FileId, inode: &mut Inode, before: &Shown) {
        let file = inode.directory_of(file);
        let Asker { watcher, others, .. } = self.asker;
        let touched = std::mem::take(&mut inode.granted.touched);
        let outdated = std::mem::take(&mut inode.granted.outdated);
        let unexpected = !self.access_asked && before.access != inode.access();
        if let Some(own) = watcher.filter(|_| unexpected) {
            let tell = inode.granted.attributes.take(Watchers::NONE.with(own));
            self.notes.push(Note::changed(Recall::Attributes(file), tell));
        }
        let Some(attributes) = &before.attributes else { return };
        if touched || outdated || inode.attributes(FileId::ROOT) != *attributes {
            self.notes.push(Note::changed(Recall::Attributes(file), inode.granted.attributes.take(others)));
        }
        if touched && inode.is_file() {
            self.notes.push(Note::changed(Recall::Bytes(file), inode.granted.content.take(others)));
        }
    }

    /// A read has moved the time of the last read.
    pub fn was_read(&mut self, file: FileId, inode: &mut Inode) {
        let tell = inode.granted.attributes.take(self.asker.others);
        if !tell.is_empty() {
            self.notes.push(Note::changed(Recall::Attributes(file), tell));
        }
    }

    /// Entries of a directory have changed. Whoever changed them keeps what it made.
    pub fn entries_changed(&mut self, directory: FileId, inode: &mut Inode) {
        let Asker { watcher, others, .. } = self.asker;
        if !others.is_empty() {
            let recall = Recall::Names(inode.directory_of(directory));
            self.notes.push(Note::changed(recall, inode.granted.content.take(others)));
        }
        if let Some(watcher) = watcher {
            inode.granted.content = inode.granted.content.with(watcher);
        }
    }

    /// A look has seen this: what was told of it before must be heard before the answer is.
    fn seen(&mut self, recall: Recall) {
        if self.asker.watcher.is_some() || !self.asker.others.is_empty() {
            self.notes.push(Note { recall, tell: Watchers::NONE, seen: true });
        }
    }
}

/// What a command asks for that may be kept.
#[derive(Clone, Copy)]
enum Subject {
    Nothing,
    /// The attributes of an inode.
    Inode,
    /// Names of this directory, and attributes of what it finds.
    Names(FileId),
    /// A new inode.
    New,
    /// Bytes of this file.
    Bytes(FileId),
    /// An object, found by a name in this directory; of it nothing is kept.
    Object(Option<FileId>),
}

impl Subject {
    fn of(command: &Command) -> Self {
        match command {
            Command::Stat { .. } | Command::Fragments { .. } => Self::Inode,
            Command::Lookup { parent, .. } => Self::Names(*parent),
            Command::List { directory, .. } | Command::ListNames { directory, .. } => Self::Names(*directory),
            Command::GetObject { parent, .. } => Self::Object(Some(*parent)),
            Command::GetFile { .. } => Self::Object(None),
            Command::Create { .. } => Self::New,
            Command::Read { file, .. } | Command::Write { file, .. } => Self::Bytes(*file),
            _ => Self::Nothing,
        }
    }
}

/// Whether it changes names as no kernel does.
fn is_about_objects(command: &Command) -> bool {
    matches!(command, Command::PutObject { .. } | Command::DeleteObject { .. })
}

impl Partition {
    /// Does a command for a session that may be granted what it is answered, and takes back what others were. Followed by
    /// [`Self::take_notes`].
    pub fn apply_for(
        &mut self,
        asker: Asker,
        stamp: Option<wire::Stamp>,
        command: Command,
        now: wire::Timestamp,
    ) -> Outcome<Answer> {
        let subject =
            if asker.watcher.is_none() && asker.others.is_empty() { Subject::Nothing } else { Subject::of(&command) };
        self.meet(asker);
        let asker = if is_about_objects(&command) { asker.beside_its_kernel() } else { asker };
        self.grants.asker = asker;
        self.grants.access_asked = matches!(command, Command::Change { .. } | Command::SetXattr { .. });
        let mut outcome = self.apply(stamp, command, now);
        self.grant(subject, &mut outcome);
        self.grants.asker = Asker::default();
        outcome
    }

    /// What the commands since the last time have changed or seen.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.grants.notes)
    }

    /// A watcher is no more: its number may be given to another.
    pub fn watcher_ended(&mut self, watcher: Watcher) {
        for inode in self.inodes.values_mut() {
            let granted = &mut inode.granted;
            granted.attributes = granted.attributes.without(watcher);
            granted.content = granted.content.without(watcher);
            granted.known = granted.known.without(watcher);
            granted.astray = granted.astray.without(watcher);
        }
        self.grants.kept.ended(watcher);
    }

    fn grant(&mut self, subject: Subject, outcome: &mut Outcome<Answer>) {
        match (subject, outcome) {
            (_, Ok(Answer::Unsettled { answer, .. })) => self.show_unsettled(subject, answer),
            (Subject::Inode, Ok(Answer::Attributes(attributes) | Answer::Fragments { attributes, .. })) => {
                self.grants.seen(Recall::Attributes(attributes.file));
                attributes.lasting = self.grant_attributes(attributes.file);
            }
            (Subject::New, Ok(Answer::Opened { attributes, .. })) => {
                // A kept answer may be older than what was recalled since.
                let fresh = self.attributes(attributes.file).is_ok_and(|now| now == *attributes);
                attributes.lasting = fresh && self.grant_attributes(attributes.file);
            }
            (Subject::Names(directory), found) => {
                self.grants.seen(Recall::Names(self.directory_of(directory)));
                if let Ok(Answer::Found { attributes: Some(attributes), .. }) = found {
                    self.grants.seen(Recall::Attributes(attributes.file));
                    attributes.lasting = self.grant_attributes(attributes.file);
                }
                if matches!(found, Ok(Answer::Found { .. } | Answer::Entries(_)) | Err(Refusal::NotFound(_))) {
                    self.grant_content(directory);
                }
            }
            (Subject::Object(directory), found) => {
                if let Some(directory) = directory {
                    self.grants.seen(Recall::Names(self.directory_of(directory)));
                }
                if let Ok(Answer::Object { head, .. }) = found {
                    self.grants.seen(Recall::Attributes(head.version.file));
                }
            }
            (Subject::Bytes(file), Ok(answer)) => {
                self.grant_content(file);
                if let Answer::Stripes { size, .. } = answer
                    && !self.grants.asker.others.is_empty()
                {
                    *size = 0; // others may read, and keep, what is there until it is written: publish it in any case
                }
            }
            _ => {}
        }
    }

    /// Whether another session than the asker's has it open.
    pub(crate) fn is_held_by_another(&self, file: FileId) -> bool {
        let asker = self.grants.asker.session;
        self.inodes.get(&file).is_some_and(|inode| inode.opens.iter().any(|(holder, _)| *holder != asker))
    }

    /// An intent holds an inode or an entry: what others keep of it is taken back before it is decided.
    pub(crate) fn recall_held(&mut self, file: FileId, entry: bool) {
        let others = self.grants.asker.others;
        let Some(inode) = self.inodes.get_mut(&file).filter(|_| !others.is_empty()) else { return };
        let shown = inode.directory_of(file);
        let tell = inode.granted.attributes.take(others);
        self.grants.notes.push(Note::changed(Recall::Attributes(shown), tell));
        if entry {
            let tell = inode.granted.content.take(others);
            self.grants.notes.push(Note::changed(Recall::Names(shown), tell));
        }
    }

    /// What an inode shows has changed although nobody asked for that: nobody waits until it is heard.
    pub fn recall_attributes(&mut self, file: FileId) {
        let Some(inode) = self.inodes.get_mut(&file) else { return };
        let tell = inode.granted.attributes.take(Watchers::ALL);
        self.grants.notes.push(Note::changed(Recall::Attributes(file), tell));
    }

    /// What is done next was asked for by this session. When another one does it, its own kernel does not know either.
    pub(crate) fn done_for(&mut self, session: Session) {
        let Asker { session: doer, watcher, others, pruning } = self.grants.asker;
        if let Some(own) = watcher.filter(|_| doer != session) {
            self.grants.asker = Asker { session: doer, watcher: None, others: others.with(own), pruning };
        }
    }

    fn grant_content(&mut self, file: FileId) {
        let Some(watcher) = self.grants.asker.watcher else { return };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.granted.content = inode.granted.content.with(watcher);
        }
    }

    /// While an intent holds what was looked at nothing of it may be kept. But the kernel knows the inode from now on.
    fn show_unsettled(&mut self, subject: Subject, answer: &Answer) {
        if let Subject::Names(directory) | Subject::Object(Some(directory)) = subject {
            self.grants.seen(Recall::Names(self.directory_of(directory)));
        }
        match answer {
            Answer::Attributes(attributes)
            | Answer::Fragments { attributes, .. }
            | Answer::Found { attributes: Some(attributes), .. } => {
                self.grants.seen(Recall::Attributes(attributes.file));
                self.note_known(attributes.file);
            }
            Answer::Object { head, .. } => self.grants.seen(Recall::Attributes(head.version.file)),
            _ => {}
        }
    }

    fn note_known(&mut self, file: FileId) {
        let Some(watcher) = self.grants.asker.watcher else { return };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.granted.known = inode.granted.known.with(watcher);
        }
    }

    /// Whether the asker may keep the attributes; it knows the inode in any case.
    fn grant_attributes(&mut self, file: FileId) -> bool {
        self.note_known(file);
        let Some(watcher) = self.grants.asker.watcher else { return false };
        let Some(inode) = self.inodes.get_mut(&file) else { return false };
        let lasting = inode.attributes_last(self.grants.asker.session);
        if lasting {
            inode.granted.attributes = inode.granted.attributes.with(watcher);
        }
        lasting
    }
}
