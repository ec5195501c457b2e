#include "eval/quantize.h"

namespace tare::eval {

Result<QuantizedTensors> QuantizeModel(const model::Checkpoint& checkpoint,
                                       const RoundingRule& rule, const InputCollector* inputs,
                                       ThreadPool& pool,
                                       const std::function<void(double fraction)>& progress) {
  QuantizedTensors out;
  const int layers = checkpoint.config().layers;
  for (int layer = 0; layer < layers; ++layer) {
    TARE_RETURN_IF_ERROR(QuantizeLayer(checkpoint, layer, rule, inputs, pool, out));
    if (progress) progress(static_cast<double>(layer + 1) / layers);
  }
  return out;
}

}  // namespace tare::eval
