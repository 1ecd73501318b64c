//! A directory that is split over partitions looks as it did before.

use crate::{
    pool_test::*,
    testing::{FaultRates, FaultyConnection},
};
use bytes::Bytes;
use placement::{FileId, PartitionId};
use std::collections::{BTreeSet, HashSet};
use wire::{
    ACL_DEFAULT, Changes, Kind, OpenFlags, Refusal, RenameMode, SubtreeUsage, TimeChange, Timestamp, USAGE, XattrMode,
};

const LIMIT: u32 = 8;

/// A directory with more entries than stay in one partition.
async fn split(fs: &TestFs, path: &str, entries: usize) -> FileId {
    let directory = fs.make_directories(path.as_bytes()).await.unwrap().file;
    fill(fs, directory, 0..entries).await;
    directory
}

async fn fill(fs: &TestFs, directory: FileId, numbers: std::ops::Range<usize>) {
    for number in numbers {
        fs.make_node(directory, format!("n{number}").as_bytes(), Kind::File, 0o644, OWNER).await.unwrap();
    }
}

async fn pool_that_splits(nodes: u32) -> TestFs {
    Pool::that_splits(nodes, LIMIT).client().await
}

fn names(entries: &[wire::DirEntry]) -> BTreeSet<String> {
    entries.iter().map(|entry| entry.name.to_string()).collect()
}

#[tokio::test]
async fn a_split_directory_counts_and_lists_all_that_is_in_it() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let directory = split(&fs, "d", 200).await;
        for number in 0..5 {
            fs.make_directory(directory, format!("s{number}").as_bytes(), 0o755, OWNER).await.unwrap();
        }
        let found = fs.stat(directory).await.unwrap();
        assert_eq!((found.kind, found.size, found.links), (Kind::Directory, 205, 7));
        let entries = all(&fs, directory).await;
        assert_eq!((entries.len(), names(&entries).len()), (205, 205), "each once");
        assert!(entries.is_sorted_by_key(|entry| entry.cookie));
        let inner = fs.lookup(directory, b"s3").await.unwrap().file;
        assert_eq!(fs.parent(inner).await.unwrap(), directory, "`..` is the directory, not its fragment");
    }
}

#[tokio::test]
async fn cookies_stay_what_they_were_when_a_directory_is_split() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let directory = split(&fs, "d", LIMIT as usize).await;
        let before = all(&fs, directory).await;
        let half = before[before.len() / 2].cookie;
        fill(&fs, directory, 8..60).await;
        let after = all(&fs, directory).await;
        assert!(before.iter().all(|entry| after.contains(entry)), "the same names, inodes and cookies");
        let rest = fs.list(directory, half, 1).await.unwrap();
        assert!(rest[0].cookie > half, "a listing that was under way goes on");
        let expected: Vec<_> = after.iter().filter(|entry| entry.cookie > half).cloned().collect();
        let mut seen = rest;
        while let Some(last) = seen.last() {
            let page = fs.list(directory, last.cookie, 7).await.unwrap();
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn a_client_with_an_old_view_finds_its_way() {
    for nodes in NODES {
        let pool = Pool::that_splits(nodes, LIMIT);
        let (one, other) = (pool.client().await, pool.client().await);
        let directory = split(&one, "d", 4).await;
        assert_eq!(other.list(directory, 0, 100).await.unwrap().len(), 4);
        fill(&one, directory, 4..50).await;
        assert_eq!(all(&other, directory).await.len(), 50);
        let third = pool.client().await;
        third.unlink(directory, b"n7").await.unwrap();
        assert!(matches!(other.lookup(directory, b"n7").await, Err(Refusal::NotFound(_))));
        assert_eq!(pool.client().await.stat(directory).await.unwrap().size, 49);
    }
}

#[tokio::test]
async fn a_split_directory_is_removed_when_it_is_empty_and_not_before() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let before = fs.usage();
        let directory = split(&fs, "d", 50).await;
        assert!(matches!(fs.remove_directory(FileId::ROOT, b"d").await, Err(Refusal::NotEmpty(_))));
        for number in 0..50 {
            fs.unlink(directory, format!("n{number}").as_bytes()).await.unwrap();
        }
        let handle = fs.open(directory, OpenFlags::READ).await.unwrap();
        fs.remove_directory(FileId::ROOT, b"d").await.unwrap();
        assert!(matches!(fs.make_symlink(directory, b"n", b"t", OWNER).await, Err(Refusal::NotFound(_))));
        assert_eq!(all(&fs, directory).await, [], "it is open, and has nothing in it");
        assert_eq!(fs.stat(directory).await.unwrap().links, 0);
        fs.close_file(handle).await.unwrap();
        let after = fs.usage();
        assert_eq!((after.used, after.files), (before.used, before.files), "its fragments are gone too");
    }
}

#[tokio::test]
async fn entries_move_into_out_of_and_within_a_split_directory() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let (directory, plain) = (split(&fs, "d", 50).await, fs.make_directories(b"plain").await.unwrap().file);
        fs.make_directory(plain, b"sub", 0o755, OWNER).await.unwrap();
        fs.rename(from(plain, "sub"), to(directory, "sub"), RenameMode::NoReplace).await.unwrap();
        for number in 0..20 {
            let (old, new) = (format!("n{number}"), format!("m{number}"));
            fs.rename(from(directory, &old), to(directory, &new), RenameMode::Replace).await.unwrap();
            fs.rename(from(directory, &new), to(plain, &new), RenameMode::Replace).await.unwrap();
        }
        let target = fs.lookup(directory, b"sub").await.unwrap().file;
        assert_eq!(fs.parent(target).await.unwrap(), directory);
        let found = fs.stat(directory).await.unwrap();
        assert_eq!((found.size, found.links, all(&fs, plain).await.len()), (31, 3, 20));
        fs.rename(from(plain, "m1"), to(directory, "sub"), RenameMode::Exchange).await.unwrap();
        assert_eq!(fs.parent(target).await.unwrap(), plain);
        fs.rename(from(FileId::ROOT, "d"), to(plain, "d"), RenameMode::Replace).await.unwrap();
        assert_eq!(fs.parent(directory).await.unwrap(), plain);
        assert_eq!(all(&fs, directory).await.len(), 31);
        let refused = fs.rename(from(FileId::ROOT, "plain"), to(directory, "x"), RenameMode::Replace).await;
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "into itself, through the split one");
    }
}

#[tokio::test]
async fn an_empty_split_directory_is_replaced_by_a_rename() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let before = fs.usage();
        let (directory, other) = (split(&fs, "d", 20).await, fs.make_directories(b"e/in").await.unwrap().file);
        let over = || fs.rename(from(FileId::ROOT, "e"), to(FileId::ROOT, "d"), RenameMode::Replace);
        assert!(matches!(over().await, Err(Refusal::NotEmpty(_))));
        for number in 0..20 {
            fs.unlink(directory, format!("n{number}").as_bytes()).await.unwrap();
        }
        over().await.unwrap();
        assert_eq!(fs.resolve(b"d/in").await.unwrap().file, other);
        fs.remove_tree(b"d").await.unwrap();
        assert_eq!((fs.usage().used, fs.usage().files), (before.used, before.files));
    }
}

#[tokio::test]
async fn times_and_modes_of_a_split_directory_are_those_of_the_whole() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let directory = split(&fs, "d", 50).await;
        let past = Timestamp { secs: 1000, nanos: 7 };
        let changes = Changes { modified: Some(TimeChange::At(past)), mode: Some(0o2750), ..Changes::default() };
        let changed = fs.change_attributes(directory, changes).await.unwrap();
        assert_eq!((changed.modified, changed.mode, changed.size), (past, 0o2750, 50));
        assert_eq!(fs.stat(directory).await.unwrap().modified, past);
        fs.unlink(directory, b"n3").await.unwrap();
        assert!(fs.stat(directory).await.unwrap().modified > past, "an entry went, in one of its fragments");
        let refused = fs.change_attributes(directory, Changes { size: Some(0), ..Changes::default() }).await;
        assert!(matches!(refused, Err(Refusal::IsDirectory(_))));
    }
}

/// A default ACL in the kernel's encoding: all permissions for the owner, reading for one more user
/// and the group.
fn default_acl() -> Bytes {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 7_u16, u32::MAX), (2, 4, 4711), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl.into()
}

#[tokio::test]
async fn what_a_split_directory_hands_down_is_handed_down_everywhere_in_it() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let before = fs.make_directories(b"before").await.unwrap().file;
        let set_acl = |directory| fs.set_xattr(directory, ACL_DEFAULT, default_acl(), XattrMode::Set, false);
        let hand_down = Changes { mode: Some(0o2770), gid: Some(77), ..Changes::default() };
        fs.change_attributes(before, hand_down).await.unwrap();
        set_acl(before).await.unwrap();
        fill(&fs, before, 0..50).await;
        let after = split(&fs, "after", 50).await;
        fs.change_attributes(after, hand_down).await.unwrap();
        set_acl(after).await.unwrap();
        for directory in [before, after] {
            for number in 0..40 {
                let name = format!("s{number}");
                let made = fs.make_directory(directory, name.as_bytes(), 0o755, OWNER).await.unwrap();
                assert_eq!((made.owner.gid, made.mode & 0o2000), (77, 0o2000), "{name}");
                assert_eq!(fs.xattr(made.file, ACL_DEFAULT).await.unwrap(), default_acl(), "{name}");
                let file =
                    fs.make_node(directory, format!("f{number}").as_bytes(), Kind::File, 0o666, OWNER).await.unwrap();
                assert_eq!((file.owner.gid, file.mode & 0o7), (77, 0), "others get what the ACL says: nothing");
            }
            fs.remove_xattr(directory, ACL_DEFAULT).await.unwrap();
            fs.change_attributes(directory, Changes { mode: Some(0o755), ..Changes::default() }).await.unwrap();
            for number in 0..40 {
                let made = fs.make_directory(directory, format!("t{number}").as_bytes(), 0o755, OWNER).await.unwrap();
                assert_eq!((made.owner.gid, made.mode & 0o2000), (OWNER.gid, 0));
                assert!(matches!(fs.xattr(made.file, ACL_DEFAULT).await, Err(Refusal::NoAttribute(_))));
            }
        }
    }
}

#[tokio::test]
async fn a_file_has_names_in_split_directories() {
    for nodes in NODES {
        let fs = pool_that_splits(nodes).await;
        let (directory, plain) = (split(&fs, "d", 50).await, fs.make_directories(b"plain").await.unwrap().file);
        let file = fs.write_file(b"plain/f", b"bytes").await.unwrap().file;
        for number in 0..30 {
            assert_eq!(fs.link(file, directory, format!("l{number}").as_bytes()).await.unwrap().links, 2 + number);
        }
        fs.unlink(plain, b"f").await.unwrap();
        assert_eq!(fs.read_file(b"d/l29").await.unwrap(), b"bytes");
        fs.remove_tree(b"d").await.unwrap();
        assert!(matches!(fs.stat(file).await, Err(Refusal::NotFound(_))));
    }
}

#[tokio::test]
async fn a_directory_splits_over_a_bad_connection_too() {
    for (seed, nodes) in (0..20).zip(NODES.into_iter().cycle()) {
        let pool = Pool::that_splits(nodes, LIMIT);
        let retry_policy = crate::RetryPolicy {
            tries: 60,
            pause_first: std::time::Duration::ZERO,
            pause_max: std::time::Duration::ZERO,
        };
        let lossy = pool.over(|node| FaultyConnection::new(node, FaultRates::MANY, seed), retry_policy).await;
        let directory = split(&lossy, "d", 40).await;
        let healthy = pool.client().await;
        assert_eq!(all(&healthy, directory).await.len(), 40, "seed {seed}");
        let before = healthy.usage().files;
        lossy.remove_tree(b"d").await.unwrap();
        assert_eq!(healthy.usage().files, before - 40 - 17, "seed {seed}: entries, the directory, its fragments");
    }
}

#[tokio::test]
async fn a_hundred_thousand_entries_are_found_listed_and_removed() {
    let fs = Pool::of(4).client().await;
    let directory = fs.make_directories(b"d").await.unwrap().file;
    let before = fs.usage();
    for number in 0..100_000 {
        fs.make_symlink(directory, number.to_string().as_bytes(), b"t", OWNER).await.unwrap();
    }
    assert_eq!(fs.stat(directory).await.unwrap().size, 100_000);
    assert_eq!(names(&all(&fs, directory).await).len(), 100_000);
    for number in 0..100_000 {
        fs.unlink(directory, number.to_string().as_bytes()).await.unwrap();
    }
    assert_eq!(fs.usage().files, before.files + 16, "its fragments stay");
}

/// The sums over a tree, by looking at each name.
async fn walked(fs: &TestFs, top: FileId) -> SubtreeUsage {
    let (mut total, mut seen, mut left) = (SubtreeUsage::default(), HashSet::new(), vec![top]);
    while let Some(directory) = left.pop() {
        for entry in all(fs, directory).await {
            if entry.kind == Kind::Directory {
                total.directories += 1;
                left.push(entry.file);
            } else if seen.insert(entry.file) {
                total = total.with(SubtreeUsage::of_file(&fs.stat(entry.file).await.unwrap()));
            }
        }
    }
    total
}

#[tokio::test]
async fn what_is_below_a_directory_is_summed_up_however_it_is_spread() {
    for nodes in NODES {
        let fs = Pool::that_splits(nodes, 64).client().await;
        let top = fs.make_directories(b"a/b").await.unwrap().file;
        for number in 0..100_u32 {
            let bytes = vec![7; number as usize * 97];
            fs.write_file(format!("a/b/f{number}").as_bytes(), &bytes).await.unwrap();
            fs.make_directories(format!("a/b/d{}/e", number % 7).as_bytes()).await.unwrap();
            fs.write_file(format!("a/b/d{}/g{number}", number % 7).as_bytes(), b"12345").await.unwrap();
        }
        fs.write_file(b"a/long", &filled(3, 5 * STRIPE)).await.unwrap();
        let (a, d) = (fs.resolve(b"a").await.unwrap().file, fs.resolve(b"a/b/d1").await.unwrap().file);
        let long = fs.resolve(b"a/long").await.unwrap().file;
        fs.link(long, d, b"again").await.unwrap();
        fs.make_symlink(d, b"s", b"elsewhere", OWNER).await.unwrap();
        for number in 0..20 {
            let (from, to) = (from(top, &format!("f{number}")), to(d, &format!("moved{number}")));
            fs.rename(from, to, RenameMode::Replace).await.unwrap();
        }
        let found = fs.subtree_usage(a).await.unwrap();
        assert_eq!(found, walked(&fs, a).await, "{nodes} nodes");
        assert_eq!((found.files, found.directories), (202, 15));
        let shown = fs.xattr(a, USAGE).await.unwrap();
        assert_eq!(shown, found.text());
        let missing = fs.subtree_usage(FileId::new(PartitionId(0), 1 << 40)).await;
        assert!(matches!(missing, Err(Refusal::NotFound(_))), "{missing:?}");
        assert!(matches!(fs.subtree_usage(long).await, Err(Refusal::NotDirectory(_))));
    }
}
