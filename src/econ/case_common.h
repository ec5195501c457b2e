// What the readers of case files share. Mistakes are recorded in the document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/config.h"

namespace tare::econ {

// Three capital letters; "XXX" after a mistake.
std::string ReadCurrency(const config::Value& root);

// "amounts in USD", or that no currency was published.
std::string AmountsIn(std::string_view currency);

// The published result beside ours: {"published", "computed", "follows", "note"}, or null when
// nothing was published. `note` is added when it does not follow.
nlohmann::json AgainstPublished(const config::Value& published, double computed,
                                std::string_view unit, std::string_view currency,
                                const std::string& note = {});

// Sets target[key] unless the value is null.
void Attach(nlohmann::json& target, const char* key, nlohmann::json value);

}  // namespace tare::econ
