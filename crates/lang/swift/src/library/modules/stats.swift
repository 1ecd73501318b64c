(int o) sum(int a[]) "sum_int";
(float o) sum(float a[]) "sum_float";
(int o) sum_integer(int a[]) "sum_int";
(float o) sum_float(float a[]) "sum_float";
(float o) avg(int a[]) "average";
(float o) avg(float a[]) "average";
(float o) std(int a[]) "deviation";
(float o) std(float a[]) "deviation";
(int o) max(int a[]) "largest_int";
(float o) max(float a[]) "largest_float";
(int o) min(int a[]) "smallest_int";
(float o) min(float a[]) "smallest_float";
type PartialStats {
  int n;
  float mean;
  float M2;
}
(float mean, float deviation) stats(int a[]) { mean = avg(a); deviation = std(a); }
(float mean, float deviation) stats(float a[]) { mean = avg(a); deviation = std(a); }
(int n, float mean, float M2) statagg(int a[]) { n = size(a); mean = avg(a); M2 = _sum_of_squares(a); }
(int n, float mean, float M2) statagg(float a[]) { n = size(a); mean = avg(a); M2 = _sum_of_squares(a); }
(float o) _sum_of_squares(int a[]) "sum_of_squares";
(float o) _sum_of_squares(float a[]) "sum_of_squares";
(int n, float mean, float deviation) stat_combine(PartialStats a[]) {
  n = _combined_count(a);
  mean = _combined_mean(a);
  deviation = _combined_deviation(a);
}
(int o) _combined_count(PartialStats a[]) "combined_count";
(float o) _combined_mean(PartialStats a[]) "combined_mean";
(float o) _combined_deviation(PartialStats a[]) "combined_deviation";
