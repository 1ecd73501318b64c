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
(int o[]) hostmapLeadersRank() "host_leaders";
(location o[]) hostmapLeaders() { foreach rank, i in hostmapLeadersRank() { o[i] = locationFromRank(rank); } }
(location o[]) hostmap_leaders() { o = hostmapLeaders(); }
