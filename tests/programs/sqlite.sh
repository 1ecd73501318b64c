# sqlite3: every journal, several writers at once, large rows, and its own check of every page.
for journal in delete truncate persist wal memory; do
    sqlite3 "$journal.db" "pragma journal_mode = $journal; create table t (k integer primary key, v blob, w text unique); begin;
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, zeroblob(i % 500), 'w' || i from n; commit;"
    sqlite3 "$journal.db" "pragma journal_mode = $journal; update t set v = zeroblob(3000) where k % 7 = 0; delete from t where k % 5 = 0; pragma integrity_check; select count(*), sum(length(v)) from t;"
    # Writers in turn: each waits for the other's lock.
    for writer in 1 2 3; do
        (for i in $(seq 15); do echo ".timeout 60000
            insert into t (v, w) values (zeroblob(100), '$writer-$i');" | sqlite3 "$journal.db"; done) &
    done; wait
    sqlite3 "$journal.db" "pragma integrity_check; select count(*) from t; pragma foreign_key_check;"
    sqlite3 "$journal.db" "select w from t order by w" | sha256sum
    sqlite3 "$journal.db" "begin; delete from t; rollback; select count(*) from t; vacuum; pragma integrity_check;"
done
sqlite3 mapped.db "pragma mmap_size = 268435456; pragma journal_mode = wal; create table b (x); insert into b select randomblob(100000) from (select 1 union select 2 union select 3 union select 4);
    pragma wal_checkpoint(truncate); update b set x = zeroblob(200000); select sum(length(x)) from b; pragma integrity_check;"
sqlite3 delete.db ".backup copy.db"; sqlite3 copy.db "pragma integrity_check; select count(*) from t"; sqlite3 delete.db ".dump" | grep -v '[123]-' | sha256sum
# A writer that dies in a transaction: what it did is undone.
(echo "begin immediate; delete from t;"; sleep 0.3; kill -9 $BASHPID) | sqlite3 delete.db & sleep 0.1; wait || true
sqlite3 delete.db "select count(*) from t; pragma integrity_check;"; ls | sort
