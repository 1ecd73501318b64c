// A mosaic of 4 images with 5 overlaps, in 24 tasks. Written by plan.py; the tools are in tools.toml.
//
// An image is two files: itself and its _area.fits. So the arrays of images have two rows: [0][i] is image i, [1][i] its area.

var images = [
    "2mass-atlas-990502s-j1420186.fits",
    "2mass-atlas-990502s-j1420198.fits",
    "2mass-atlas-990502s-j1430080.fits",
    "2mass-atlas-990502s-j1430092.fits"
];
// Which of them overlap, by their places in `images`.
var overlaps = [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]];

var header = Data.get("region.hdr");

// 1. Every image is projected onto the plane of the mosaic.
var projected = Data.define("Projected", [2, images.length]);
for (var i = 0; i < images.length; i++)
    mProjectPP({image: Data.get(images[i]), header: header, projected: projected[0][i], area: projected[1][i]});
var table = Data.define("ProjectedTable");
mImgtbl({images: projected, table: table});

// 2. Where two of them overlap they should agree: a plane is fitted to their difference.
var differences = Data.define("Difference", [2, overlaps.length]);
var fits = Data.define("Fit", overlaps.length);
for (var k = 0; k < overlaps.length; k++) {
    var a = overlaps[k][0], b = overlaps[k][1];
    mDiff({plus: projected[0][a], plusArea: projected[1][a], minus: projected[0][b], minusArea: projected[1][b],
           header: header, difference: differences[0][k], area: differences[1][k]});
    mFitplane({difference: differences[0][k], area: differences[1][k], fit: fits[k]});
}
var fitTable = Data.define("FitTable");
Gather({images: table, fits: fits, table: fitTable});

// 3. From the fits follows a correction for each image.
var corrections = Data.define("Corrections");
mBgModel({images: table, fits: fitTable, corrections: corrections});
var corrected = Data.define("Corrected", [2, images.length]);
for (var i = 0; i < images.length; i++)
    mBackground({image: projected[0][i], imageArea: projected[1][i], images: table, corrections: corrections,
                 corrected: corrected[0][i], area: corrected[1][i]});
var correctedTable = Data.define("CorrectedTable");
mImgtbl({images: corrected, table: correctedTable});

// 4. The corrected images become one, and a picture of it.
var mosaic = Data.define("Mosaic");
mAdd({images: corrected, table: correctedTable, header: header, mosaic: mosaic, area: Data.define("MosaicArea")});
mViewer({image: mosaic, picture: Data.define("Picture")});
