#include "econ/quantity_reader.h"

namespace tare::econ {

double ReadQuantity(const config::Value& value, std::string_view unit, std::string_view currency) {
  const std::string text = value.String();
  if (text.empty()) return 1;  // String() has recorded why
  Result<double> parsed = ParseIn(text, unit, currency);
  if (parsed) return *parsed;
  value.AddError("{}", parsed.error().message);
  return 1;
}

double ReadQuantityOr(const config::Value& value, std::string_view unit, double fallback,
                      std::string_view currency) {
  return value.present() ? ReadQuantity(value, unit, currency) : fallback;
}

}  // namespace tare::econ
