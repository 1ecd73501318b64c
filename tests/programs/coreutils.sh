# The everyday tools: copies, moves, links, sparse files, permissions, listings. All it prints must be as on tmpfs.
umask 022
seq 1 200000 > numbers
mkdir -p tree/a/b tree/c
cp numbers tree/a/one; head -c 3000 numbers > tree/a/b/small; : > tree/c/empty
ln tree/a/one tree/c/hard; ln -s ../a/one tree/c/soft; ln -s nowhere tree/dangling; mkfifo tree/pipe
chmod 750 tree/a; chmod 4755 tree/a/b/small; chmod 1777 tree/c
find tree -exec touch -h -d '2020-02-02 02:02:02' {} +
touch -d '2001-02-03 04:05:06.789' tree/a/one; touch -h -d '2002-03-04' tree/c/soft; touch -d '1970-01-01 00:00:01' tree/c
chown 12:34 tree/a/b/small

look() { (cd "$1" && find . ! -type d -printf '%P %y %m %n %U:%G %s %T@ %l\n' -o -printf '%P %y %m %n %U:%G\n' | sort); }
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
cp -a tree copy; look copy; sums copy; diff -r --no-dereference tree/a copy/a && echo same
cp -r --preserve=mode,links tree plain; look plain | cut -d' ' -f1-4
mv copy moved; look moved; sums moved
cp --remove-destination tree/a/one tree/c/hard; stat -c '%h %s' tree/a/one tree/c/hard
cp -l tree/a/one hardcopy; cp -s "$PWD/tree/a/one" softcopy; stat -c '%F %h' hardcopy softcopy
cp --reflink=auto numbers clone && cmp numbers clone && install -m 640 -D numbers deep/er/installed && stat -c '%a %s' deep/er/installed
cp -b --suffix=.old tree/a/b/small clone; ls clone*; cp -n numbers clone; stat -c %s clone; cp -u numbers clone; stat -c %s clone; mv -n numbers clone; ls numbers

dd if=/dev/zero of=sparse bs=1 count=0 seek=5M status=none; stat -c '%s' sparse
dd if=numbers of=sparse bs=4k seek=512 count=4 conv=notrunc status=none; sha256sum < sparse
cp --sparse=always sparse sparser; cmp sparse sparser && echo alike; truncate -s +100 sparser; truncate -s %4096 sparser; stat -c %s sparser
fallocate -l 100000 room; stat -c '%s' room; fallocate -p -o 4096 -l 8192 room; sha256sum < room
dd if=numbers of=direct bs=64k iflag=fullblock oflag=append conv=notrunc status=none; cmp numbers direct && echo appended

split -b 100000 -d numbers part.; ls part.* | wc -l; cat part.* | cmp - numbers && echo whole
sort -rn -S 1M -T . numbers | head -2; tac numbers | head -1; shuf --random-source=numbers numbers | sha256sum
tee t1 t2 < numbers | tail -n1; comm -12 t1 t2 | wc -l; paste t1 t2 | tail -n1; wc numbers; cksum numbers
tail -c 11 numbers; tail -n +199999 numbers; sed -i '1d;$s/$/!/' t1; head -1 t1; tail -1 t1; awk 'NR%50000==0{print > "every"}' numbers; cat every
( cat tree/pipe > from_pipe & echo through > tree/pipe; wait ); cat from_pipe
exec 9> lockfile; flock -n 9 && echo locked; (exec 8> lockfile; flock -n 8 || echo held); exec 9>&-; flock -n lockfile echo free
mktemp -d -p . tmp.XXXXXXXX | wc -c; readlink -f tree/c/soft | sed "s|$PWD||"; realpath --relative-to=. tree/a/../c
chmod -R g=u,o= tree/a; chown -R 7:8 tree/a; chgrp -h 9 tree/c/soft; look tree/a; du -b tree/a/b/small tree/a/one | sort
gzip -k9 numbers; gunzip -c numbers.gz | cmp - numbers && echo zipped
timeout 0.2 tail -f every > followed || true; cat followed; test every -nt tree/a/one && echo newer; test tree/a/one -ef tree/a/one && echo itself
rm -r moved; rm -rf tree plain deep; rmdir tmp.* ; find . -depth -name 'part.*' -delete; ls -A
