#include "engine/adapter_store.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "model/memory_need.h"

namespace tare::engine {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

Status CheckName(const std::string& name) {
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
  });
  if (!name.empty() && name.size() <= kMaxNameBytes && plain && IsValidUtf8(name)) return {};
  return FailParam("lora_name",
                   "an adapter's name has 1 to {} bytes of text without spaces: choose another",
                   kMaxNameBytes);
}

Status CheckMemory(const std::filesystem::path& folder, const model::ModelConfig& base,
                   kernels::WeightType base_type) {
  std::error_code error;
  const auto size = std::filesystem::file_size(folder / "adapter_model.safetensors", error);
  if (error) return {};  // reading it says why
  TARE_TRY(const std::uint64_t available, model::AvailableMemory());
  const std::uint64_t most = model::LoraAdapter::MostBytes(size, base, base_type);
  if (most <= available) return {};
  return Fail(ErrorKind::kResourceExhausted,
              "the adapter in '{}' may take {}, this machine has {} left: unload others first",
              folder.string(), FormatBytes(most), FormatBytes(available));
}

}  // namespace

struct AdapterStore::Alive {
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> bytes{0};
};

AdapterStore::AdapterStore(model::ModelConfig base, kernels::WeightType base_type)
    : base_(std::move(base)), base_type_(base_type), alive_(std::make_shared<Alive>()) {}

Result<AdapterStore::Entry> AdapterStore::Read(const std::string& name,
                                               const std::filesystem::path& folder) const {
  const SteadyClock clock;
  const Nanos begin = clock.Now();
  TARE_RETURN_IF_ERROR(CheckMemory(folder, base_, base_type_));
  TARE_TRY(auto adapter, model::LoraAdapter::Load(folder, base_, base_type_));
  Entry entry;
  entry.info = {name,
                folder,
                adapter->bytes(),
                adapter->modules(),
                adapter->max_rank(),
                static_cast<std::int64_t>(std::time(nullptr)),
                {}};
  alive_->count.fetch_add(1);
  alive_->bytes.fetch_add(adapter->bytes());
  // Counted off when it is really gone, whoever lets go of it last.
  entry.adapter = {adapter.release(), [alive = alive_](const model::LoraAdapter* gone) {
                     alive->count.fetch_sub(1);
                     alive->bytes.fetch_sub(gone->bytes());
                     delete gone;
                   }};
  entry.info.loading = clock.Now() - begin;
  return entry;
}

Status AdapterStore::Load(const std::string& name, const std::filesystem::path& folder,
                          bool replace) {
  const auto taken = [&]() -> Status {
    if (replace || !entries_.contains(name)) return {};
    return FailParam("lora_name",
                     "the adapter '{}' is loaded already: unload it first, or send "
                     "\"load_inplace\": true",
                     name);
  };
  const auto load = [&]() -> Result<Entry> {
    TARE_RETURN_IF_ERROR(CheckName(name));
    {
      std::lock_guard lock(mutex_);
      TARE_RETURN_IF_ERROR(taken());
    }
    return Read(name, folder);
  };
  Result<Entry> entry = load();
  // The old version is let go of outside the lock, and nothing is written under it: every request
  // takes it in Find.
  std::shared_ptr<const model::LoraAdapter> old;
  std::unique_lock lock(mutex_);
  Status status;
  if (!entry) {
    status = tl::unexpected(std::move(entry).error());
  } else {
    status = taken();  // another call may have been faster
  }
  if (!status) {
    ++counts_.refused_loads;
    return status;
  }
  ++counts_.loads;
  counts_.load_seconds += ToSeconds(entry->info.loading);
  const AdapterInfo info = entry->info;
  Entry& place = entries_[name];
  old = std::move(place.adapter);
  place = *std::move(entry);
  lock.unlock();
  LogInfo("adapter '{}' loaded in {}: {} linear layers, rank up to {}, {}", name,
          FormatDuration(info.loading), info.modules, info.max_rank, FormatBytes(info.bytes));
  return {};
}

Status AdapterStore::Unload(const std::string& name) {
  decltype(entries_)::node_type gone;  // let go of outside the lock
  std::unique_lock lock(mutex_);
  gone = entries_.extract(name);
  if (gone.empty()) {
    Error error{ErrorKind::kNotFound, fmt::format("no adapter '{}' is loaded", name), "lora_name",
                ""};
    return tl::unexpected(std::move(error));
  }
  ++counts_.unloads;
  lock.unlock();
  LogInfo("adapter '{}' unloaded", name);
  return {};
}

std::shared_ptr<const model::LoraAdapter> AdapterStore::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.adapter;
}

std::vector<AdapterInfo> AdapterStore::List() const {
  std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> list;
  for (const auto& [name, entry] : entries_) list.push_back(entry.info);
  return list;
}

AdapterStats AdapterStore::Stats() const {
  std::lock_guard lock(mutex_);
  AdapterStats stats = counts_;
  stats.loaded = entries_.size();
  for (const auto& [name, entry] : entries_) stats.loaded_bytes += entry.info.bytes;
  // Those being loaded count as alive a little before they have a name.
  stats.retiring = alive_->count.load() - std::min(alive_->count.load(), stats.loaded);
  stats.retiring_bytes = alive_->bytes.load() - std::min(alive_->bytes.load(), stats.loaded_bytes);
  return stats;
}

}  // namespace tare::engine
