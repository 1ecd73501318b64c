//! The macro behind the table of commands in `command`.
//!
//! From one row of the table come: the variant, the constructor with the type of its answer,
//! whether the command is a change, its bulk bytes, its bounds, what it is about, its samples, its
//! row in `docs/formats/wire.md`, and a row of `for_each_command`, from which partitions make their
//! dispatch.

use crate::{Answer, Object, Outcome, RenameFrom, codec::CheckResult};
use bytes::Bytes;
use placement::FileId;

/// A command, with the type of its answer.
pub struct TypedCommand<V> {
    /// The command.
    pub command: crate::Command,
    /// Takes the value from an answer.
    pub take: fn(Answer) -> Outcome<V>,
}

/// A row of the table of commands, for documents.
#[derive(Clone, Copy, Debug)]
pub struct CommandRow {
    /// The name of the variant.
    pub name: &'static str,
    /// `query`: it changes nothing. `change`: it carries a request id.
    pub kind: &'static str,
    /// The type of the answer.
    pub answer: &'static str,
    /// Its effect.
    pub doc: &'static str,
}

/// The field of a command that travels as the payload of its frame.
pub trait BulkField {
    /// The bytes.
    fn bulk(&self) -> &Bytes;
    /// The bytes, to be replaced.
    fn bulk_mut(&mut self) -> &mut Bytes;
}

impl BulkField for Bytes {
    fn bulk(&self) -> &Bytes {
        self
    }

    fn bulk_mut(&mut self) -> &mut Bytes {
        self
    }
}

/// A field of a command that a client may get wrong.
pub trait BoundedField {
    /// Validates the value, as a client sends it.
    fn check(&self) -> CheckResult {
        Ok(())
    }
}

/// The source of samples of a field's type.
pub trait FieldSamples<T> {
    /// The samples, at least one.
    fn samples() -> Vec<T>;
}

/// Declares the commands. A row is: kind, constructor, variant with its fields, the function of
/// [`Answer`] that takes the answer, its type, `free` if it adds no bytes and `weighs` if it may,
/// its bulk field, a rule between its fields. Behind `on` is what it is about.
macro_rules! commands {
    ($d:tt $(
        $(#[doc = $doc:literal])+
        $kind:ident $method:ident $variant:ident
            $({ $($(#[$meta:meta])* $field:ident: $type:ty,)* })? on ($($subject:ident),*)
            -> $take:ident: $answer:ty, $weight:ident $(, bulk $bulk:ident)? $(, where $bounds:expr)?;
    )*) => {
        /// A command to a partition. Changes carry a request id ([`RequestId`](crate::RequestId)).
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Command {
            $($(#[doc = $doc])+ $variant $({ $($(#[$meta])* $field: $type,)* })?,)*
        }

        /// Constructors, each with the type of the answer.
        impl Command {
            $(
                $(#[doc = $doc])+
                pub fn $method($($($field: $type),*)?) -> TypedCommand<$answer> {
                    TypedCommand { command: Self::$variant $({ $($field),* })?, take: Answer::$take }
                }
            )*
        }

        impl Command {
            /// The rows of the table, in the order of the numbers in messages.
            pub const ROWS: &[CommandRow] = &[$(CommandRow {
                name: stringify!($variant),
                kind: stringify!($kind),
                answer: stringify!($answer),
                doc: concat!($($doc,)+),
            },)*];

            /// Returns the number of its row, which is also its number in messages.
            pub fn number(&self) -> usize {
                enum CommandNumber {
                    $($variant,)*
                }
                match self {
                    $(Self::$variant { .. } => CommandNumber::$variant as usize,)*
                }
            }

            /// Returns true if the command is a change and needs a [`RequestId`](crate::RequestId).
            /// A read only updates the atime, which it may do twice.
            pub fn is_mutation(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => command_kind!($kind) != CommandKind::Query,)*
                }
            }

            /// Returns true if it adds no bytes of metadata.
            pub fn is_free(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => weight!($weight),)*
                }
            }

            /// Returns the object that it is about, for messages.
            pub fn object(&self) -> Object {
                match self {
                    $(#[allow(unused_variables, reason = "only the subject is of interest")]
                    Self::$variant $({ $($field),* })? => subject!($($subject)*),)*
                }
            }

            /// Returns the bulk bytes, if it has such a field.
            pub fn bulk(&self) -> Option<&Bytes> {
                match self {
                    $($(Self::$variant { $bulk, .. } => Some($bulk.bulk()),)?)*
                    _ => None,
                }
            }

            /// Returns the bulk bytes, to be replaced.
            pub fn bulk_mut(&mut self) -> Option<&mut Bytes> {
                match self {
                    $($(Self::$variant { $bulk, .. } => Some($bulk.bulk_mut()),)?)*
                    _ => None,
                }
            }

            /// Validates a command of a client; an error says what is wrong.
            #[allow(unused_variables, reason = "most commands have no rule between their fields")]
            pub fn check(&self) -> CheckResult {
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        $($(BoundedField::check($field)?;)*)?
                        $($bounds?;)?
                    })*
                }
                Ok(())
            }
        }

        /// Passes all commands to a macro, after the tokens given: for each the name of its method,
        /// and its variant with the names of its fields. So whoever executes commands does not
        /// compile until a new one has its method.
        #[macro_export]
        macro_rules! for_each_command {
            ($d callback:ident $d ($d token:tt)*) => {
                $d callback! { $d ($d token)* $($method $variant { $($($field)*)? })* }
            };
        }

        impl Command {
            /// Samples for tests: of each command one with the first sample of each field, and one
            /// for each further sample of a field. `S` has the samples of the fields.
            pub fn samples<S>() -> Vec<Self>
            where
                $($($(S: FieldSamples<$type>,)*)?)*
            {
                let mut all = Vec::new();
                $(
                    let first = Self::$variant $({ $($field: <S as FieldSamples<$type>>::samples().swap_remove(0),)* })?;
                    all.push(first.clone());
                    $($(
                        for other in <S as FieldSamples<$type>>::samples().into_iter().skip(1) {
                            let mut changed = first.clone();
                            if let Self::$variant { $field, .. } = &mut changed {
                                *$field = other;
                            }
                            all.push(changed);
                        }
                    )*)?
                )*
                all
            }
        }
    };
}

/// The kinds of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// It changes nothing.
    Query,
    /// With a request id.
    Change,
}

/// The subjects of commands.
pub trait CommandSubject {
    /// The object, for messages.
    fn object(&self) -> Object;
}

impl CommandSubject for FileId {
    fn object(&self) -> Object {
        Object::File(*self)
    }
}

impl CommandSubject for RenameFrom {
    fn object(&self) -> Object {
        Object::entry(self.parent, &self.name)
    }
}

macro_rules! subject {
    () => {
        Object::Pool
    };
    ($subject:ident) => {
        CommandSubject::object($subject)
    };
    ($parent:ident $name:ident) => {
        Object::entry(*$parent, $name)
    };
}

macro_rules! weight {
    (free) => {
        true
    };
    (weighs) => {
        false
    };
}

macro_rules! command_kind {
    (query) => {
        CommandKind::Query
    };
    (change) => {
        CommandKind::Change
    };
}

pub(crate) use {command_kind, commands, subject, weight};
