// store.h: where an exchange keeps memories and encoder states.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "state_list.h"
#include "store_handle.h"
#include "thinwire/store.h"

namespace nb = nanobind;

namespace thinwire::python {

void bind_store(nb::module_& module) {
  nb::class_<StoreHandle>(module, "Store")
      .def(nb::init<>())
      .def("save",
           [](StoreHandle& self) {
             const UseMark::Guard guard(self.use, StoreHandle::kWho);
             return to_list(self.store.save());
           })
      .def(
          "load",
          [](StoreHandle& self, const std::vector<StateList>& saved, int rank, int size) {
            const UseMark::Guard guard(self.use, StoreHandle::kWho);
            std::vector<StateArrays> ranks;
            for (const StateList& list : saved) ranks.push_back(from_list(list));
            self.store.load(ranks, rank, size).or_throw();
          },
          nb::arg("saved"), nb::arg("rank"), nb::arg("size"))
      .def(
          "drop",
          [](StoreHandle& self, const std::string& key) {
            const UseMark::Guard guard(self.use, StoreHandle::kWho);
            self.store.drop(key);
          },
          nb::arg("key"))
      .def("unclaimed", [](StoreHandle& self) {
        const UseMark::Guard guard(self.use, StoreHandle::kWho);
        return self.store.unclaimed();
      });
}

}  // namespace thinwire::python
