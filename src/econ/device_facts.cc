#include "econ/device_facts.h"

#include <algorithm>

namespace tare::econ {

double PeakFlopPerSecond(const DeviceFacts& device, std::string_view weight_precision) {
  const double wide = device.bf16_flop_per_second;
  if (weight_precision == "fp32") return device.fp32_flop_per_second;
  if (weight_precision == "fp8") return std::max(wide, device.fp8_flop_per_second);
  if (weight_precision == "int8" || weight_precision == "q8_0") {
    return std::max(wide, device.int8_op_per_second);
  }
  if (weight_precision == "nvfp4" || weight_precision == "mxfp4") {
    return std::max(wide, device.fp4_flop_per_second);
  }
  // CPU kernels multiply 4-bit weights as 8-bit integers; GPU kernels widen them to 16 bits.
  if (device.cpu && (weight_precision == "q4_0" || weight_precision == "q4_1")) {
    return std::max(wide, device.int8_op_per_second);
  }
  return wide;
}

}  // namespace tare::econ
