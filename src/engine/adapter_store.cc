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

}  // namespace

std::uint64_t MostAdapterBytes(const std::filesystem::path& folder, const model::ModelConfig& base,
                               kernels::WeightType base_type) {
  std::error_code error;
  const auto size = std::filesystem::file_size(folder / "adapter_model.safetensors", error);
  return error ? 0 : model::LoraAdapter::MostBytes(size, base, base_type);
}

struct AdapterStore::Alive {
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> bytes{0};
};

AdapterStore::AdapterStore(model::ModelConfig base, kernels::WeightType base_type,
                           std::optional<AdapterRoom> room)
    : base_(std::move(base)),
      base_type_(base_type),
      room_(room),
      alive_(std::make_shared<Alive>()) {}

Status AdapterStore::MakeRoom(const std::string& name, std::uint64_t most) {
  TARE_TRY(const std::uint64_t left, model::AvailableMemory());
  std::lock_guard lock(mutex_);
  if (loading_bytes_ + most > left) {
    return Fail(ErrorKind::kResourceExhausted,
                "the adapter '{}' may take {}, this machine has {} left: unload others first", name,
                FormatBytes(most), FormatBytes(left - std::min(left, loading_bytes_)));
  }
  if (room_) {
    model::MemoryNeed need = room_->model;
    need.adapters = alive_->bytes.load() + loading_bytes_ + most;
    if (need.total() > room_->available) {
      return Fail(ErrorKind::kResourceExhausted,
                  "the adapter '{}' may take {}, which does not fit beside the model and the "
                  "others: {} > {} there were when the model was loaded; unload others, or start "
                  "with a smaller --kv-memory",
                  name, FormatBytes(most), model::Sum(need), FormatBytes(room_->available));
    }
  }
  loading_bytes_ += most;
  return {};
}

Result<AdapterStore::Entry> AdapterStore::Read(const std::string& name,
                                               const std::filesystem::path& folder) {
  const SteadyClock clock;
  const Nanos begin = clock.Now();
  const std::uint64_t most = MostAdapterBytes(folder, base_, base_type_);
  TARE_RETURN_IF_ERROR(MakeRoom(name, most));
  auto loaded = model::LoraAdapter::Load(folder, base_, base_type_);
  // From here on it counts with what it takes.
  if (loaded) {
    alive_->count.fetch_add(1);
    alive_->bytes.fetch_add((*loaded)->bytes());
  }
  {
    std::lock_guard lock(mutex_);
    loading_bytes_ -= most;
  }
  TARE_TRY(auto adapter, std::move(loaded));
  Entry entry;
  entry.info = {name,
                folder,
                adapter->bytes(),
                adapter->modules(),
                adapter->max_rank(),
                static_cast<std::int64_t>(std::time(nullptr)),
                {}};
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
