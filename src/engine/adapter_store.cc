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
// Packed, at most twice what the file holds: 16-bit values with small ranks become floats.
constexpr std::uint64_t kMemoryPerFileByte = 2;

Status CheckName(const std::string& name) {
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
  });
  if (!name.empty() && name.size() <= kMaxNameBytes && plain && IsValidUtf8(name)) return {};
  return FailParam("lora_name",
                   "an adapter's name has 1 to {} bytes of text without spaces: choose another",
                   kMaxNameBytes);
}

Status CheckMemory(const std::filesystem::path& folder) {
  std::error_code error;
  const auto size = std::filesystem::file_size(folder / "adapter_model.safetensors", error);
  if (error) return {};  // reading it says why
  TARE_TRY(const std::uint64_t available, model::AvailableMemory());
  if (size <= available / kMemoryPerFileByte) return {};
  return Fail(ErrorKind::kResourceExhausted,
              "the adapter in '{}' may take {}, this machine has {} left: unload others first",
              folder.string(), FormatBytes(kMemoryPerFileByte * size), FormatBytes(available));
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
  TARE_RETURN_IF_ERROR(CheckMemory(folder));
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
  // The old version is let go of outside the lock.
  std::shared_ptr<const model::LoraAdapter> old;
  std::lock_guard lock(mutex_);
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
  LogInfo("adapter '{}' loaded in {}: {} linear layers, rank up to {}, {}", name,
          FormatDuration(entry->info.loading), entry->info.modules, entry->info.max_rank,
          FormatBytes(entry->info.bytes));
  Entry& place = entries_[name];
  old = std::move(place.adapter);
  place = *std::move(entry);
  return {};
}

Status AdapterStore::Unload(const std::string& name) {
  decltype(entries_)::node_type gone;  // let go of outside the lock
  std::lock_guard lock(mutex_);
  gone = entries_.extract(name);
  if (gone.empty()) {
    Error error{ErrorKind::kNotFound, fmt::format("no adapter '{}' is loaded", name), "lora_name",
                ""};
    return tl::unexpected(std::move(error));
  }
  ++counts_.unloads;
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
