// Run records for tests, made by a seeded generator in the shape load::RunLoad writes them.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "store/run_record.h"

namespace tare::advise {

struct MadeUpRun {
  std::string id = "run-1";
  double users = 8;
  double tokens_per_s = 400;  // mean; seconds vary by `spread`
  double spread = 0.05;
  double e2e_s = 0.8;  // median; answers vary by 20 %
  double ttft_s = 0.1;
  int requests = 100;
  int failed = 0;
  int seconds = 20;
  std::uint64_t seed = 1;
  bool with_series = true;
};

inline store::RunRecord MakeRun(const MadeUpRun& made) {
  std::mt19937_64 random(made.seed);
  std::uniform_real_distribution<double> vary(-1, 1);
  store::RunRecord record;
  record.id = made.id;
  record.started_at = "2026-11-30T10:00:00Z";
  store::RunSummary& summary = record.summary;
  const auto ok = static_cast<std::uint64_t>(made.requests - made.failed);
  summary.total = static_cast<std::uint64_t>(made.requests);
  summary.ok = ok;
  summary.failed = static_cast<std::uint64_t>(made.failed);
  summary.input_tokens = ok * 96;
  summary.output_tokens = ok * 32;
  summary.duration_s = made.seconds;
  summary.output_tokens_per_s = made.tokens_per_s;
  summary.requests_per_s = made.tokens_per_s / 32;
  summary.peak_rss_bytes = 300u << 20;
  summary.peak_pss_bytes = 280u << 20;
  for (store::LatencyPair* pair : {&summary.ttft, &summary.itl, &summary.tpot, &summary.e2e}) {
    const double base = pair == &summary.ttft  ? made.ttft_s
                        : pair == &summary.e2e ? made.e2e_s
                                               : 0.02;
    pair->sent = {base, base, base * 1.15, base * 1.18, base * 1.2, base * 1.25, ok};
    pair->intended = pair->sent;
  }
  record.workload = {{"arrival", {{"kind", "closed"}, {"users", made.users}}}};
  record.target = {{"url", "http://127.0.0.1:1"}};
  if (!made.with_series) return record;
  nlohmann::json tokens = nlohmann::json::array();
  for (int i = 0; i < made.seconds; ++i) {
    tokens.push_back(std::round(made.tokens_per_s * (1 + made.spread * vary(random))));
  }
  nlohmann::json requests = {{"ttft_s", nlohmann::json::array()},
                             {"e2e_s", nlohmann::json::array()},
                             {"tpot_s", nlohmann::json::array()},
                             {"ok", nlohmann::json::array()},
                             {"measured", nlohmann::json::array()}};
  for (int i = 0; i < made.requests; ++i) {
    const bool good = i >= made.failed;
    const double factor = 1 + 0.2 * vary(random);
    requests["ttft_s"].push_back(good ? nlohmann::json(made.ttft_s * factor) : nullptr);
    requests["e2e_s"].push_back(good ? nlohmann::json(made.e2e_s * factor) : nullptr);
    requests["tpot_s"].push_back(good ? nlohmann::json(0.02 * factor) : nullptr);
    requests["ok"].push_back(good ? 1 : 0);
    requests["measured"].push_back(1);
  }
  record.series = {{"window_s", {0.0, made.seconds}},
                   {"per_second", {{"tokens", tokens}}},
                   {"request_stride", 1},
                   {"requests", requests}};
  return record;
}

}  // namespace tare::advise
