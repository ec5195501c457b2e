// Compute needed by requests (SPEC row EC2) and by training (EC9).
//
// A dense forward pass costs 2 FLOP a parameter a token, training 6 (Kaplan et al. 2020, section
// 2.1; Hoffmann et al. 2022, appendix F); a sparse model counts its active parameters. The
// attention term, 4 * layers * heads * head_dim * context a token, is left to econ/roofline.
#pragma once

namespace tare::econ {

struct DeviceCompute {
  double peak_flop_per_second = 0;
  double utilisation = 1;  // of the peak, in (0, 1]
};

// Device-seconds that one request takes: parameters * 2 * tokens / (peak * utilisation).
double DeviceSecondsPerRequest(double active_parameters, double tokens,
                               const DeviceCompute& device);

// EC2 as published: the share of one device's compute that `requests_per_second` take; above 1
// more devices are needed.
double DevicesForRate(double active_parameters, double tokens, const DeviceCompute& device,
                      double requests_per_second);

// Most requests a second one device can compute.
double RequestsPerSecondCeiling(double active_parameters, double tokens,
                                const DeviceCompute& device);

// Device-days to train on `training_tokens`: 6 * parameters * tokens / (peak * utilisation).
double TrainingDeviceDays(double active_parameters, double training_tokens,
                          const DeviceCompute& device);

// The utilisation that a stated number of device-days implies; above 1 the claim is impossible.
double ImpliedTrainingUtilisation(double active_parameters, double training_tokens,
                                  double peak_flop_per_second, double device_days);

}  // namespace tare::econ
