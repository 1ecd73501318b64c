# BLAST+: databases of both formats, searched by several threads, and read back.
cp "$DATA/blast/nifh-ref.fa" "$DATA/blast/nifh-db.fa" .; head -n 400 "$DATA/blast/corn.fa" > queries.fa
for version in 4 5; do
    makeblastdb -in nifh-db.fa -dbtype nucl -blastdb_version "$version" -title t -out "v$version/db" > /dev/null; ls "v$version"
    blastn -db "v$version/db" -query queries.fa -evalue 1e-10 -outfmt 6 -num_threads 2 -out "hits$version"
    sort "hits$version" | sha256sum; blastdbcmd -db "v$version/db" -entry all -outfmt '%s' | sha256sum
done
blastn -subject nifh-ref.fa -query queries.fa -outfmt 6 | sort | head -n 3
makeblastdb -in nifh-ref.fa -dbtype nucl -parse_seqids -out ids > /dev/null; blastdbcmd -db ids -info | grep sequences; ls
