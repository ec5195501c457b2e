// Adapters of models in this process, behind the router and over a renewal of their model: a real
// engine with tiny weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "api/wire_error.h"
#include "engine/engine.h"
#include "gateway/local_models.h"
#include "gateway/local_upstream.h"
#include "gateway/router_fixture.h"
#include "model/load.h"
#include "model/lora_test_folder.h"
#include "net/event_loop.h"

namespace tare::gateway {
namespace {

using ::testing::HasSubstr;

// A model of this process that takes no adapters, as one that makes embeddings.
class Embedder final : public Upstream {
 public:
  std::vector<ModelInfo> Models() const override { return {{"embedder", 0, 0, ""}}; }
  Result<std::unique_ptr<ChatCall>> Chat(api::ChatRequest, std::shared_ptr<ChatSink>) override {
    return Fail(ErrorKind::kUnsupported, "writes no text");
  }
  bool Ready() const override { return true; }
};

class LocalAdaptersTest : public testing::Test {
 protected:
  LocalAdaptersTest() : first_(Adapter(), "a"), second_(Adapter(), "b") {
    for (const model::TinyModel& tiny : model::ReadTinyModels()) {
      if (tiny.name == "llama") bytes_ = model::TinyGguf(tiny);
    }
    const auto file = model::GgufFile::Parse(std::as_bytes(std::span(bytes_)), "tiny.gguf").value();
    engine::EngineOptions options;
    options.pool = std::make_shared<ThreadPool>(1);
    model::LoadOptions loading;
    loading.pool = options.pool.get();
    auto model = model::LoadModel(file, loading).value();
    config_ = model->config();
    type_ = model->weight_type();
    store_ = Store();
    engine_ = engine::Engine::Start(std::move(options), std::move(model), nullptr).value();
    local_ = std::make_shared<LocalUpstream>(LocalUpstreamOptions{"tiny", false, store_}, engine_);
  }
  static model::TinyAdapter Adapter() {
    for (const model::TinyAdapter& one : model::ReadTinyAdapters()) {
      if (one.name == "all") return one;
    }
    return {};
  }
  std::shared_ptr<engine::AdapterStore> Store() const {
    return std::make_shared<engine::AdapterStore>(config_, type_);
  }
  // The route "m" to the tiny model, under its other name "alias"; "e" to an embedder.
  std::shared_ptr<Router> Route(bool hosted = false) const {
    RouterConfig config;
    config.upstreams.resize(2);
    config.upstreams[0].remote.name = "here";
    config.upstreams[0].local = local_;
    config.upstreams[1].remote.name = "vectors";
    config.upstreams[1].local = std::make_shared<Embedder>();
    config.routes = {{"m", {"alias"}, {{"here", "tiny", 0}}}, {"e", {}, {{"vectors", "e", 0}}}};
    auto router = Router::Create(std::move(config), hosted);
    EXPECT_TRUE(router) << router.error().message;
    return *router;
  }
  static tare::Status Load(Upstream& upstream, api::LoadAdapterRequest request) {
    std::promise<tare::Status> loaded;
    upstream.LoadAdapter(std::move(request),
                         [&](tare::Status status) { loaded.set_value(status); });
    return loaded.get_future().get();
  }

  const model::AdapterFolder first_, second_;
  std::string bytes_;
  model::ModelConfig config_;
  kernels::WeightType type_{};
  std::shared_ptr<engine::AdapterStore> store_;
  std::shared_ptr<engine::Engine> engine_;
  std::shared_ptr<LocalUpstream> local_;
};

TEST_F(LocalAdaptersTest, OnlyModelsThatTakeAdaptersCanBeMeant) {
  const auto router = Route();
  api::LoadAdapterRequest request;
  request.name = "sql";
  request.folder = first_.path();
  request.base = "e";
  const tare::Status refused = Load(*router, request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("no model 'e' that takes adapters"));
  request.base.clear();
  const tare::Status loaded = Load(*router, request);
  EXPECT_TRUE(loaded) << loaded.error().message;
  EXPECT_NE(store_->Find("sql"), nullptr);
}

TEST_F(LocalAdaptersTest, UnloadsByEveryNameThatRequestsMayUse) {
  const auto router = Route();
  for (const char* name : {"sql", "m:sql", "alias:sql"}) {
    ASSERT_TRUE(store_->Load("sql", first_.path(), false));
    const tare::Status unloaded = router->UnloadAdapter(name);
    EXPECT_TRUE(unloaded) << name << ": " << unloaded.error().message;
    EXPECT_EQ(store_->Find("sql"), nullptr) << name;
    EXPECT_EQ(router->UnloadAdapter(name).error().kind, ErrorKind::kNotFound) << name;
  }
  EXPECT_EQ(router->UnloadAdapter("m").error().kind, ErrorKind::kNotFound);
  for (const char* name : {"sql", "tiny:sql"}) {
    ASSERT_TRUE(store_->Load("sql", first_.path(), false));
    EXPECT_TRUE(local_->UnloadAdapter(name)) << name;
  }
  // A name with a colon of its own is whole before it is anything else.
  ASSERT_TRUE(store_->Load("sql", first_.path(), false));
  ASSERT_TRUE(store_->Load("tiny:sql", first_.path(), false));
  EXPECT_TRUE(local_->UnloadAdapter("tiny:sql"));
  EXPECT_NE(store_->Find("sql"), nullptr);
}

TEST_F(LocalAdaptersTest, OneUnloadedBeforeItsRequestIsPlacedIsNotFound) {
  const auto router = Route(/*hosted=*/true);  // nothing runs before the loop does
  ASSERT_TRUE(store_->Load("sql", first_.path(), false));
  api::ChatRequest request;
  request.model = "m:sql";
  auto sink = std::make_shared<Collected>();
  const auto call = router->Chat(std::move(request), sink);
  ASSERT_TRUE(call);
  ASSERT_TRUE(store_->Unload("sql"));
  std::thread loop([&] { router->loop()->Run(); });
  EXPECT_TRUE(sink->Wait()) << "hangs";
  router->loop()->Post([&] { router->loop()->Stop(); });
  loop.join();
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->kind, ErrorKind::kNotFound);
  EXPECT_EQ(sink->error->code, api::kModelNotFound);
  EXPECT_THAT(sink->error->message, HasSubstr("'m:sql'"));
}

TEST_F(LocalAdaptersTest, ARenewedModelTakesWhatWasLoadedAndNotFormerFlags) {
  const auto folder = [](const engine::AdapterStore& store, const char* name) {
    for (const engine::AdapterInfo& adapter : store.List()) {
      if (adapter.name == name) return adapter.folder;
    }
    return std::filesystem::path();
  };
  LoadedModel before, renewed;
  before.spec.options.adapters = {
      {"gone", first_.path()}, {"kept", first_.path()}, {"replaced", first_.path()}};
  before.adapters = store_;
  for (const auto& [name, path] : before.spec.options.adapters) {
    ASSERT_TRUE(store_->Load(name, path, false));
  }
  ASSERT_TRUE(store_->Load("replaced", second_.path(), true));
  ASSERT_TRUE(store_->Load("loaded", second_.path(), false));
  // The new flags: without the first, the second from elsewhere, the third as it was.
  renewed.adapters = Store();
  ASSERT_TRUE(renewed.adapters->Load("kept", second_.path(), false));
  ASSERT_TRUE(renewed.adapters->Load("replaced", first_.path(), false));
  TakeAdapters(before, renewed);
  EXPECT_EQ(folder(*renewed.adapters, "gone"), "") << "its flag was taken away";
  EXPECT_EQ(folder(*renewed.adapters, "kept"), second_.path()) << "as the new flag says";
  EXPECT_EQ(folder(*renewed.adapters, "replaced"), second_.path()) << "replaced while it served";
  EXPECT_EQ(folder(*renewed.adapters, "loaded"), second_.path());
  TakeAdapters(LoadedModel{}, renewed);  // of embeddings: nothing to take
}

}  // namespace
}  // namespace tare::gateway
