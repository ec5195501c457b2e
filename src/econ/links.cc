#include "econ/links.h"

#include <cmath>

namespace tare::econ {

LinkMove MoveCache(const ModelFacts& model, const Precision& cache, double context_tokens,
                   double link_bytes_per_second, double seconds) {
  LinkMove move;
  move.bytes = KvBytesPerToken(model, cache) * context_tokens;
  move.seconds_at_peak = move.bytes / link_bytes_per_second;
  if (seconds > 0) move.link_used = move.seconds_at_peak / seconds;
  return move;
}

double ExpectedTargetDevices(int experts, int experts_per_token, int devices) {
  // Chosen without replacement: a device with e of E experts is missed with probability
  // C(E - e, k) / C(E, k).
  const double per_device = static_cast<double>(experts) / devices;
  double missed = 1;
  for (int i = 0; i < experts_per_token; ++i) {
    missed *= std::fmax(0.0, experts - per_device - i) / (experts - i);
  }
  return devices * (1 - missed);
}

double AllToAllBytesPerToken(const ModelFacts& model, int devices) {
  if (!model.sparse() || devices <= 1) return 0;
  constexpr double kActivationBytes = 2;
  const double targets = ExpectedTargetDevices(model.experts, model.experts_per_token, devices);
  const double elsewhere = targets * (devices - 1) / devices;
  return 2 * elsewhere * model.hidden * kActivationBytes * model.sparse_layers();
}

}  // namespace tare::econ
