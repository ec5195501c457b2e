#include "econ/case_common.h"

#include <fmt/format.h>

#include <cmath>

#include "econ/published.h"
#include "econ/quantity_reader.h"

namespace tare::econ {

using config::Value;
using nlohmann::json;

std::string ReadCurrency(const Value& root) {
  const std::string currency = root["currency"].String();
  if (ParseQuantity("1 " + currency).has_value()) return currency;
  root["currency"].AddError("a currency is three capital letters, such as USD");
  return "XXX";
}

std::string AmountsIn(std::string_view currency) {
  return currency == "XXX" ? "amounts in a currency that was not published"
                           : fmt::format("amounts in {}", currency);
}

json AgainstPublished(const Value& published, double computed, std::string_view unit,
                      std::string_view currency, const std::string& note) {
  if (!published.present()) return nullptr;
  const std::string text = published.String();
  Result<Published> figure = ParsePublished(text);
  const double in_unit = ReadQuantity(published, unit, currency);
  if (!figure) return nullptr;  // ReadQuantity has recorded why
  const double half =
      figure->half_step * std::abs(figure->number == 0 ? 1 : in_unit / figure->number);
  const bool follows = std::abs(in_unit - computed) <= half * (1 + 1e-9);
  json result = {{"published", in_unit}, {"computed", computed}, {"follows", follows}};
  if (!follows) {
    result["note"] = fmt::format("does not follow from its own formula, which gives {}{}",
                                 FormatNumber(computed), note.empty() ? "" : "; " + note);
  }
  return result;
}

void Attach(json& target, const char* key, json value) {
  if (!value.is_null()) target[key] = std::move(value);
}

}  // namespace tare::econ
