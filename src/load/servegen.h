// Traffic drawn from the parameters of production clients, as ServeGen publishes them: for each
// client a file NAME-trace.csv, a line per window of ten minutes,
//
//   start s, requests/s, CV of gaps, "Gamma" or "Weibull" or nothing, shape, scale
//
// and a file NAME-dataset.json, from a start second to the distributions of lengths in tokens:
//
//   {"0": {"input_tokens": "{71: 0.0003, 72: 0.03, …}", "output_tokens": "{…}"}, "21600": …}
//
// A client's gaps are drawn from its window's distribution, brought to its window's rate; the
// clients are laid over one another. The result is a Trace, so everything that replays one applies.
// The same files, window, rate and seed give the same trace. Pure but for reading the files.
// Source: Xiang et al., ServeGen: Workload Characterization and Generation of Large Language Model
// Serving in Production (arXiv 2505.09999).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/trace.h"

namespace tare::load {

struct ClientWindow {
  double start = 0;  // s
  double rate = 0;   // requests/s
  double cv = 0;     // as the file says; shape decides
  enum class Gaps { kNone, kGamma, kWeibull } gaps = Gaps::kNone;
  double shape = 0;
};

struct LengthDistribution {
  std::vector<int> tokens;         // ascending
  std::vector<double> cumulative;  // to 1
  int At(double share) const;      // the quantile; 0 when empty
};

struct ClientLengths {
  double start = 0;  // s
  LengthDistribution input, output;
};

struct Client {
  std::string name;
  std::vector<ClientWindow> windows;   // by start, at least one
  std::vector<ClientLengths> lengths;  // by start, at least one
};

Result<std::vector<ClientWindow>> ParseClientWindows(std::string_view csv);
Result<std::vector<ClientLengths>> ParseClientLengths(std::string_view json);
// "{71: 0.25, 72: 0.75}".
Result<LengthDistribution> ParseDistribution(std::string_view text);

// A folder with such pairs of files, or one NAME-trace.csv whose pair lies beside it.
Result<std::vector<Client>> LoadClients(const std::filesystem::path& path);

struct DrawSpec {
  Nanos from{0}, length{0};  // of the clients' time
  double rate = 0;           // mean of all clients together; 0: as they are
  std::uint64_t seed = 1;
};
Result<Trace> DrawTrace(const std::vector<Client>& clients, const DrawSpec& spec);

}  // namespace tare::load
