# rsync -aHAX and tar with attributes: owners, times, hard links, access lists and extended attributes go and come back.
mkdir -p from/sub/deep; seq 50000 > from/large; echo small > from/small; : > from/empty; ln from/large from/sub/hard; ln -s ../small from/sub/soft; ln -s nowhere from/dangling
mkfifo from/pipe; mknod from/null c 1 3; truncate -s 3M from/sparse; echo end >> from/sparse; chmod 2750 from/sub; chmod 4711 from/small; chown 11:22 from/large; chown -h 33:44 from/sub/soft
setfacl -m u:nobody:rw,g:daemon:r from/large; setfacl -d -m u:nobody:rwx from/sub; setfacl -m u:12345:r from/sub/deep
setfattr -n user.note -v 'a note' from/small; setfattr -n user.empty from/small; setfattr -n trusted.secret -v 0x00ff from/sub; setfattr -n user.long -v "$(head -c 3000 from/large | tr '\n' ,)" from/large
find from -exec touch -h -d '2010-11-12 13:14:15.123456789' {} +

look() { (cd "$1"; find . -printf '%P %y %m %n %U:%G %T@ %l\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum; find . ! -type l | sort | xargs getfacl -npE; find . ! -type l | sort | xargs getfattr -d -m - -e hex); }
look from > wanted; sha256sum wanted
same() { look "$1" > got; cmp wanted got && echo "$1 is the same"; }
rsync -aHAX from/ rsynced/; same rsynced
rsync -aHAX --itemize-changes from/ rsynced/
echo change >> from/small; touch -d '2010-11-12 13:14:15.5' from/small; rm from/empty; mkdir from/new; echo x > from/new/x; find from -newermt 2011-01-01 -exec touch -h -d '2010-11-12 13:14:16' {} +
rsync -aHAX --delete --itemize-changes from/ rsynced/ | sort; look from > wanted; same rsynced
rsync -aHAX --inplace --no-whole-file --checksum --itemize-changes from/ rsynced/; rsync -aHAXS --link-dest="$PWD/rsynced" from/ linked/; same_inode=$(stat -c %i rsynced/large); [ "$(stat -c %i linked/large)" = "$same_inode" ] && echo linked
rm -r linked
tar --xattrs --xattrs-include='*' --acls --sparse --sort=name -cf all.tar from; mkdir untarred; tar --xattrs --xattrs-include='*' --acls -xpf all.tar -C untarred; same untarred/from
tar --xattrs --acls --compare -f all.tar && echo compared; tar -tvf all.tar --numeric-owner | awk '{print $1, $2, $3, $6}' | sort
tar --sort=name -czf small.tgz -C from small sub; tar -tzf small.tgz | sort; tar --update -f all.tar from/small; cp -a from copied; same copied; mkdir unzipped; tar -xzf small.tgz -C unzipped --strip-components=1 --no-same-owner; ls -R unzipped
(cd from; find . -depth ! -name . -print0 | sort -z | cpio -o0 -H newc --quiet 2> /dev/null | wc -c || true) > /dev/null
rm -r from rsynced untarred copied; ls
