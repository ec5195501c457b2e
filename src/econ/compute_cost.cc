#include "econ/compute_cost.h"

namespace tare::econ {
namespace {
constexpr double kSecondsPerDay = 86400;
}

double DeviceSecondsPerRequest(double active_parameters, double tokens,
                               const DeviceCompute& device) {
  return active_parameters * 2 * tokens / (device.peak_flop_per_second * device.utilisation);
}

double DevicesForRate(double active_parameters, double tokens, const DeviceCompute& device,
                      double requests_per_second) {
  return DeviceSecondsPerRequest(active_parameters, tokens, device) * requests_per_second;
}

double RequestsPerSecondCeiling(double active_parameters, double tokens,
                                const DeviceCompute& device) {
  return 1 / DeviceSecondsPerRequest(active_parameters, tokens, device);
}

double TrainingDeviceDays(double active_parameters, double training_tokens,
                          const DeviceCompute& device) {
  return 6 * active_parameters * training_tokens /
         (device.peak_flop_per_second * device.utilisation) / kSecondsPerDay;
}

double ImpliedTrainingUtilisation(double active_parameters, double training_tokens,
                                  double peak_flop_per_second, double device_days) {
  return TrainingDeviceDays(active_parameters, training_tokens, {peak_flop_per_second, 1}) /
         device_days;
}

}  // namespace tare::econ
