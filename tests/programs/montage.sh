# Montage: two images of M17 are projected, their difference fitted, backgrounds matched, the mosaic added up and drawn.
# Each program tells what it did, and how long it took.
told() { "$@" | sed 's/, *time=[0-9.]*//'; }
# Images are listed by name: tables in the order of a folder would differ between file systems.
list() { { printf '|%50s|\n' fname; printf ' %50s \n' *[0-9].fits; } > ../list.tbl; told mImgtbl -t ../list.tbl . "$1"; }
mkdir images projected corrected; cp "$DATA"/m17/*-j14201*.fits images; cp "$DATA/m17/region.hdr" .
for image in images/*.fits; do told mProjectPP "$image" "projected/${image##*/}" region.hdr; done
cd projected; list ../projected.tbl; cd ..; grep -c fits projected.tbl
told mOverlaps projected.tbl overlaps.tbl
set -- projected/*[0-9].fits; told mDiff "$1" "$2" difference.fits region.hdr; told mFitplane -s fit.txt difference.fits; cat fit.txt
mkdir differences; told mDiffExec -p projected overlaps.tbl region.hdr differences; told mFitExec overlaps.tbl fits.tbl differences; cat fits.tbl
told mBgModel projected.tbl fits.tbl corrections.tbl; cat corrections.tbl
cd projected; for image in *[0-9].fits; do told mBackground -t "$image" "../corrected/$image" ../projected.tbl ../corrections.tbl; done
cd ../corrected; list ../corrected.tbl; cd ..
told mAdd -p corrected corrected.tbl region.hdr mosaic.fits; told mViewer -ct 0 -gray mosaic.fits -2s max gaussian-log -png mosaic.png
# Behind its headers, one of which is a date.
for image in projected/*.fits corrected/*.fits mosaic*.fits; do echo "$image $(tail -c 200000 "$image" | sha256sum)"; done
sha256sum mosaic.png; ls -R
