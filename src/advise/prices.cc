#include "advise/prices.h"

#include <algorithm>
#include <vector>

#include "advise/assets.h"
#include "base/config.h"
#include "base/files.h"
#include "base/text.h"
#include "econ/catalog.h"

namespace tare::advise {
namespace {

using config::Value;

const Value::Names<std::string> kTags = {{"claimed", "claimed"}, {"assumed", "assumed"}};

bool LooksLikeDate(std::string_view text) {  // YYYY-MM-DD
  constexpr std::string_view kShape = "dddd-dd-dd";
  return std::equal(text.begin(), text.end(), kShape.begin(), kShape.end(), [](char c, char shape) {
    return shape == 'd' ? c >= '0' && c <= '9' : c == shape;
  });
}

std::string ReadDate(const Value& value, const std::string& fallback) {
  const std::string date = fallback.empty() ? value.String() : value.StringOr(fallback);
  if (!date.empty() && !LooksLikeDate(date)) {
    value.AddError("expected a date such as 2026-11-30, got '{}'", date);
  }
  return date;
}

}  // namespace

Result<PriceList> ParsePriceList(std::string_view text, std::string source) {
  TARE_TRY(const config::Document document, config::Document::Parse(text, std::move(source)));
  const Value root = document.root();
  PriceList list;
  (void)root["schema"].Choice<int>({{"tare.prices/1", 1}});
  (void)root["currency"].Choice<int>({{"USD", 1}});
  Price defaults;
  defaults.source = root["source"].String();
  defaults.date = ReadDate(root["date"], "");
  defaults.tag = root["tag"].Choice(kTags);
  const auto read = [&](const Value& value, const char* price_key) {
    Price price;
    price.usd_per_hour = value[price_key].Number(0);
    price.tag = value["tag"].ChoiceOr(defaults.tag, kTags);
    price.source = value["source"].StringOr(defaults.source);
    price.date = ReadDate(value["date"], defaults.date);
    return price;
  };
  list.per_vcpu = read(root["local"], "usd_per_vcpu_hour");
  for (const auto& [name, value] : root["machines"].EntriesOrEmpty()) {
    Price price = read(value, "usd_per_hour");
    price.label = value["label"].StringOr(name);
    list.machines.emplace(name, std::move(price));
  }
  TARE_RETURN_IF_ERROR(document.Finish());
  return list;
}

Result<PriceList> LoadPriceList(const std::filesystem::path& path) {
  if (path.empty()) return ParsePriceList(assets::kPrices, "catalog/prices.yaml");
  TARE_TRY(const std::string text, ReadFile(path, config::kMaxBytes));
  return ParsePriceList(text, path.string());
}

Result<Price> PriceOf(const Candidate& candidate, const Plan& plan, const PriceList& list,
                      int vcpus) {
  if (candidate.usd_per_hour) {
    return Price{*candidate.usd_per_hour, candidate.machine, "assumed",
                 fmt::format("given for this candidate in {}", plan.source), ""};
  }
  if (!candidate.machine.empty()) {
    const auto it = list.machines.find(candidate.machine);
    if (it != list.machines.end()) return it->second;
    std::vector<std::string> known;
    for (const auto& [name, price] : list.machines) known.push_back(name);
    const std::string nearest = NearestName(candidate.machine, known);
    return FailParam("machine", "{}:{}: the price list has no machine '{}'; {}", plan.source,
                     candidate.line, candidate.machine,
                     nearest.empty() ? fmt::format("it has {}", fmt::join(known, ", "))
                                     : fmt::format("did you mean '{}'?", nearest));
  }
  if (plan.usd_per_hour) {
    return Price{*plan.usd_per_hour, "", "assumed", "given with --price or in the plan", ""};
  }
  if (candidate.kind == Candidate::Kind::kLocal) {
    Price price = list.per_vcpu;
    price.usd_per_hour *= vcpus;
    price.source = fmt::format("{} cores × {} USD per core and hour: {}", vcpus,
                               list.per_vcpu.usd_per_hour, list.per_vcpu.source);
    return price;
  }
  const bool claimed = candidate.kind == Candidate::Kind::kClaimed;
  if (claimed ||
      (candidate.kind == Candidate::Kind::kSimulated && candidate.replica.calibration.empty())) {
    const int devices = claimed ? candidate.claimed.devices : candidate.replica.devices;
    TARE_TRY(const econ::Catalog catalog, econ::Catalog::BuiltIn());
    TARE_TRY(const econ::DeviceFacts device,
             catalog.FindDevice(claimed ? candidate.claimed.device : candidate.replica.device));
    if (device.price_usd_per_hour > 0) {
      Price price;
      price.usd_per_hour = device.price_usd_per_hour * devices;
      price.label = fmt::format("{} × {}", devices, device.name);
      price.tag = "claimed";
      for (const econ::Provenance& from : device.provenance) {
        if (from.figure != "price") continue;
        price.source =
            fmt::format("{} × {} USD/h: {}", devices, device.price_usd_per_hour, from.source);
        price.date = from.date;
      }
      return price;
    }
  }
  return FailParam("price",
                   "{}:{}: candidate '{}' has no price: give it `price: 1.20/h` or `machine:` "
                   "(one of the price list), or the plan a `price:`",
                   plan.source, candidate.line, candidate.name);
}

}  // namespace tare::advise
