//! Tests of opens by name, and of permission checks on directories.

use crate::partition_test::*;
use placement::FileId;
use wire::{
    Answer, Command, Credentials, DirAccess, ExtentRequest, Name, NewInode, NewKind, OpenFlags, OpenedFile, Owner,
    credentials::{READ, WRITE},
};

const OWNER: Owner = Owner { uid: 1000, gid: 1000 };

fn made(bench: &mut Bench, text: &str, kind: NewKind, mode: u32) -> FileId {
    let (inode, name) = (NewInode::new(kind, mode, OWNER), name(text));
    match bench.apply(Command::Create { parent: FileId::ROOT, name, inode, open: false, extent: ExtentRequest::None }) {
        Answer::Attributes(attributes) | Answer::Opened(OpenedFile { attributes, .. }) => attributes.file,
        other => panic!("{other:?}"),
    }
}

fn open(name: Name, flags: OpenFlags) -> Command {
    Command::OpenName { parent: FileId::ROOT, name, flags, extent: ExtentRequest::None }
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), access: DirAccess::Lookup }
}

#[test]
fn a_name_is_opened_where_it_is_a_file_that_is_surely_open_to_the_user_and_looked_at_else() {
    let mut bench = Bench::new();
    let file = made(&mut bench, "f", NewKind::File, 0o640);
    made(&mut bench, "d", NewKind::Directory, 0o777);
    made(&mut bench, "l", NewKind::Symlink("f".into()), 0o777);
    let opens = |text: &str, flags, who: Option<&Credentials>| {
        let resolved = bench.partition.resolve_open(open(name(text), flags), who);
        match &resolved {
            Command::Open { file: opened, .. } => assert_eq!(*opened, file),
            Command::Lookup { .. } => {}
            other => panic!("{other:?}"),
        }
        matches!(resolved, Command::Open { .. })
    };
    for (wants, flags) in [(READ, OpenFlags::READ), (WRITE, OpenFlags::WRITE), (READ | WRITE, OpenFlags::READ_WRITE)] {
        assert!(opens("f", flags, None) && opens("f", flags, Some(&user(1000))));
        assert!(
            !opens("f", flags, Some(&user(1))),
            "{wants}: it may be by an ACL or by capabilities, and that is not sure"
        );
        let of_group = Credentials { groups: vec![1000], ..user(1) };
        assert_eq!(opens("f", flags, Some(&of_group)), wants == READ);
    }
    let cut = OpenFlags { truncate: true, ..OpenFlags::READ };
    assert!(!opens("f", cut, Some(&Credentials { groups: vec![1000], ..user(1) })), "to cut it is to write it");
    assert!(!opens("d", OpenFlags::READ, None) && !opens("l", OpenFlags::READ, None));
    assert!(!opens("none", OpenFlags::READ, None));
    assert!(matches!(bench.apply(open(name("f"), OpenFlags::READ)), Answer::Opened(..)));
    assert!(matches!(bench.apply(open(name("l"), OpenFlags::READ)), Answer::Found(..)));
}
