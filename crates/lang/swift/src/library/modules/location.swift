(location o) locationFromRank(int rank) { o = location(rank, HARD, RANK); }
(location o) location_from_rank(int rank) { o = locationFromRank(rank); }
(int o) randomWorkerRank() "random_worker";
(location o) randomWorker() { o = locationFromRank(randomWorkerRank()); }
(location o) random_worker() { o = randomWorker(); }
(string o[]) hostmapList() "host_list";
(string o[]) hostmap_list() { o = hostmapList(); }
(int o) hostmapOneRank(string host) "host_rank";
(int o) hostmapOneWorkerRank(string host) "host_rank";
(location o) hostmapOne(string host) { o = locationFromRank(hostmapOneRank(host)); }
(location o) hostmap_one(string host) { o = hostmapOne(host); }
(location o) hostmapOneWorker(string host) { o = locationFromRank(hostmapOneWorkerRank(host)); }
(location o) hostmap_one_worker(string host) { o = hostmapOneWorker(host); }
(int o[]) hostmapLeaders() "host_leaders";
(int o[]) hostmapLeadersRank() "host_leaders";
(int o[]) hostmap_leaders() "host_leaders";
(location o) rank2location(int rank) { o = location(rank, HARD, RANK); }
(location o) random_engine() { o = randomWorker(); }
(location o) locationOf(file f) "location_of";
(location o) locationOf(file f, LocationStrictness strictness) "location_of";
