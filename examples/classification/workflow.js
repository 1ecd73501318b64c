var TrRef = Data.get("Train");
var STrRef = Data.define("STrain");
Shuffler({dataset:TrRef, sDataset:STrRef});
var n = 20;
var PRef = Data.define("TrainPart", n);
Partitioner({dataset:STrRef, datasetPart:PRef});
var MRef = Data.define("Model", [3,n]);
for(var i = 0; i <n; i++){
C45({dataset:PRef[i], model:MRef[0][i]});
SVM({dataset:PRef[i], model:MRef[1][i]});
NaiveBayes({dataset:PRef[i], model:MRef[2][i]});
}
var TeRef = Data.get("Test");
var BMRef = Data.define("BestModel");
ModelSelector({dataset:TeRef, models:MRef, bestModel:BMRef});
var m = 80;
var DRef = Data.get("Unlab", m);
var FDRef = Data.define("FUnlab", m);
for(var i = 0; i <m; i++)
Filter({dataset:DRef[i], fDataset:FDRef[i]});
var CRef = Data.define("ClassDataset", m);
for(var i = 0; i <m; i++)
Predictor({dataset:FDRef[i], model:BMRef, classDataset:CRef[i]});
