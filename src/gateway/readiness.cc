#include "gateway/readiness.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/log.h"

namespace tare::gateway {

namespace {

using nlohmann::json;
using std::chrono::system_clock;

constexpr std::size_t kMaxBytes = 16 << 20;

bool Met(Channel channel, const ReadinessReport::Event& event) {
  return event.ready && event.seconds <= ToSeconds(ReadinessTarget(channel));
}

json ToJson(const ReadinessReport::Event& event) {
  return {
      {"at", event.at}, {"seconds", event.seconds}, {"ready", event.ready}, {"what", event.what}};
}

}  // namespace

const char* ToString(Channel channel) {
  switch (channel) {
    case Channel::kCanary:
      return "canary";
    case Channel::kAb:
      return "ab";
    case Channel::kReload:
      return "reload";
  }
  return "";
}

Nanos ReadinessTarget(Channel channel) {
  switch (channel) {
    case Channel::kCanary:
      return std::chrono::minutes(3);
    case Channel::kAb:
      return std::chrono::seconds(120);
    case Channel::kReload:
      break;
  }
  return std::chrono::seconds(8);
}

Readiness::Readiness(std::filesystem::path file, WallClock now)
    : file_(std::move(file)),
      now_(now != nullptr ? std::move(now) : [] { return system_clock::now(); }) {
  Load();
}

void Readiness::Load() {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  const auto text = ReadFile(file_, kMaxBytes);
  const json saved = json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  try {
    std::array<Events, kChannels.size()> read;
    for (const Channel channel : kChannels) {
      for (const json& entry : saved.at(ToString(channel))) {
        read[static_cast<std::size_t>(channel)].push_back(
            {entry.at("at").get<std::int64_t>(), entry.at("seconds").get<double>(),
             entry.at("ready").get<bool>(), entry.at("what").get<std::string>()});
      }
    }
    events_ = std::move(read);
  } catch (const json::exception&) {
    LogWarn("'{}' cannot be read; the report of readiness begins anew", file_.string());
  }
}

void Readiness::Note(Channel channel, bool ready, Nanos took, std::string what) {
  std::lock_guard lock(mutex_);
  Events& events = events_[static_cast<std::size_t>(channel)];
  const auto at = std::chrono::floor<std::chrono::seconds>(now_().time_since_epoch()).count();
  events.push_back({at, ToSeconds(took), ready, std::move(what)});
  if (events.size() > kKept) events.pop_front();
  SaveLocked();
}

void Readiness::SaveLocked() {
  if (file_.empty()) return;
  json document = json::object();
  for (const Channel channel : kChannels) {
    json& list = document[ToString(channel)] = json::array();
    for (const auto& event : events_[static_cast<std::size_t>(channel)]) {
      list.push_back(ToJson(event));
    }
  }
  const Status written =
      WriteFileAtomic(file_, document.dump(-1, ' ', false, json::error_handler_t::replace));
  if (!written && !failed_) {
    LogWarn("the report of readiness is not kept: {}", written.error().message);
  }
  failed_ = !written;
}

std::vector<ReadinessReport> Readiness::Report() const {
  std::lock_guard lock(mutex_);
  std::vector<ReadinessReport> reports;
  for (const Channel channel : kChannels) {
    const Events& events = events_[static_cast<std::size_t>(channel)];
    ReadinessReport& report = reports.emplace_back();
    report.channel = channel;
    report.events = events.size();
    std::vector<double> took;
    for (const auto& event : events) {
      if (Met(channel, event)) ++report.met;
      if (event.ready) took.push_back(event.seconds);
    }
    if (!took.empty()) {
      std::sort(took.begin(), took.end());
      report.median_s = took[(took.size() - 1) / 2];
      report.worst_s = took.back();
    }
    const std::size_t shown = std::min(events.size(), kShown);
    report.last.assign(events.rbegin(), events.rbegin() + static_cast<std::ptrdiff_t>(shown));
  }
  return reports;
}

}  // namespace tare::gateway
