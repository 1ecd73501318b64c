# git: many files, branches, merges, clones, packing, and its own check. Names of commits depend on every byte, so they are compared.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git init -q -b main first; cd first
git config core.preloadIndex true; git config core.fsmonitor false
for i in $(seq 300); do mkdir -p "d$((i % 17))"; seq "$i" $((i * 3)) > "d$((i % 17))/f$i"; done
ln -s d1/f1 link; chmod +x d2/f2; git add -A; git commit -qm one; git rev-parse HEAD
git status --porcelain
git checkout -qb side; for i in $(seq 1 3 300); do echo side >> "d$((i % 17))/f$i"; done; git mv d3 moved; git rm -q d6/f6; git commit -qam side
git checkout -q main; for i in $(seq 2 3 300); do [ $((i % 17)) = 3 ] || echo main >> "d$((i % 17))/f$i"; done; git commit -qam main
git merge -q -m merged side; git rev-parse HEAD; git log --oneline --graph | wc -l; git diff --stat HEAD~1 | tail -1
git tag -am v1 v1; git stash list; echo dirt >> d1/f1; git stash -q; git status --porcelain; git stash pop -q; git checkout -q -- .
git worktree add -q ../worktree side; git -C ../worktree rev-parse HEAD; git worktree remove ../worktree
cd ..; git clone -q first second; git clone -q --bare first bare.git; git clone -q --no-local --depth 1 "file://$PWD/first" shallow 2> /dev/null
git -C second rev-parse HEAD; git -C second status --porcelain; git -C shallow log --oneline | wc -l
cd second; echo more > more; git add more; git commit -qm more; git push -q ../bare.git main; git -C ../bare.git rev-parse main; git fetch -q origin
git repack -qad; git gc -q --prune=now --aggressive; git fsck --strict --full; git count-objects -v | grep -v size; git -C ../bare.git gc -q; git -C ../bare.git fsck --strict
git grep -c side | wc -l; git clean -fdxq; git reset -q --hard HEAD~1; git rev-parse HEAD; git bisect start -q HEAD HEAD~1 2> /dev/null || true
git archive HEAD | sha256sum; git bundle create -q ../all.bundle --all; git clone -q ../all.bundle ../third 2> /dev/null; git -C ../third rev-parse HEAD
