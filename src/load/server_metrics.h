// The target's own view during a run: its /metrics read once a second and put on the run's time
// axis.
//
// Servers name the same thing differently, and rename it between versions; what is kept has one
// name:
//   waiting, running        requests queued and in work
//   kv_use                  share of the KV cache in use, 0 to 1
//   prefix_hits, prefix_queries   tokens (or blocks) found in and asked of the prefix cache, totals
// Sources: the metrics pages of vLLM, SGLang, llama-server (llama.cpp) and Tare.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "net/http_client.h"

namespace tare::load {

struct MetricSample {
  std::string name;
  std::string labels;  // as written between the braces
  double value = 0;
};

// The samples of a reading in the Prometheus text format. Lines that are none are skipped;
// histograms' buckets and values that are not finite are left out.
std::vector<MetricSample> ParsePrometheus(std::string_view text);

// The known figures in such a reading, by the names above, summed over labels.
std::map<std::string, double> KnownServerFigures(const std::vector<MetricSample>& samples);

class MetricsScraper {
 public:
  // Asks `url` (…/metrics) with `headers`. A target without the path is asked once and left alone.
  static Result<std::unique_ptr<MetricsScraper>> Create(net::Url url, net::HttpHeaders headers,
                                                        bool verify_tls);
  ~MetricsScraper();
  MetricsScraper(const MetricsScraper&) = delete;
  MetricsScraper& operator=(const MetricsScraper&) = delete;

  // Called often; asks at most once a second and never waits for the answer.
  void Tick(Nanos now);

  struct Series {
    std::vector<Nanos> at;  // when the answer arrived
    std::vector<double> value;
  };
  std::map<std::string, Series> Take();

 private:
  struct Impl;
  explicit MetricsScraper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::load
