// A small Objective-C runtime for clang's Apple ABI on ELF and x86-64: classes, messages, reference counts and
// autorelease pools, as much as ARC needs to run lily's Metal driver. All classes are linked into one library. There are
// no exceptions, categories, blocks or weak references.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Selector = const char *;
struct Class;
struct Object {
    Class *isa;
};
using Method = void *(*)(Object *, Selector);

// What clang writes into the sections, by the Apple ABI.
struct MethodEntry {
    Selector name;
    const char *types;
    Method code;
};
struct MethodList {
    std::uint32_t entry_bytes, count;
    MethodEntry entries[1]; // count of them
};
struct Variable {
    std::uint64_t *offset;
    const char *name, *type;
    std::uint32_t alignment, bytes;
};
struct VariableList {
    std::uint32_t entry_bytes, count;
    Variable entries[1];
};
struct Description {
    std::uint32_t flags, start, bytes, placed; // placed: unused by clang, 1 once the variables have their offsets
    const void *layout;
    const char *name;
    MethodList *methods;
    void *protocols;
    VariableList *variables;
    const void *weak_layout;
    void *properties;
};
struct Class {
    Class *isa, *super;
    void *cache, *table;
    Description *description;
};

constexpr std::uint32_t kIsMeta = 1; // of Description::flags

std::unordered_map<std::string, Selector> &selectors() {
    static auto *all = new std::unordered_map<std::string, Selector>; // never freed: objects may die after statics
    return *all;
}

std::unordered_map<Class *, std::unordered_map<Selector, Method>> &methods() {
    static auto *all = new std::unordered_map<Class *, std::unordered_map<Selector, Method>>;
    return *all;
}

Selector unique(Selector name) { return selectors().emplace(name, name).first->second; }

void add_methods(Class *to) {
    MethodList *list = to->description->methods;
    for (std::uint32_t i = 0; list != nullptr && i < list->count; ++i) {
        list->entries[i].name = unique(list->entries[i].name);
        methods()[to][list->entries[i].name] = list->entries[i].code;
    }
}

// The instance variables begin where those of the superclass end, which the compiler did not know.
void place_variables(Class *of) {
    Description &own = *of->description;
    if (of->super == nullptr || own.placed == 1) {
        return;
    }
    place_variables(of->super);
    own.placed = 1;
    const std::uint32_t end = of->super->description->bytes;
    if (end <= own.start) {
        return;
    }
    const std::uint32_t shift = (end - own.start + 7) / 8 * 8;
    own.start += shift;
    own.bytes += shift;
    for (std::uint32_t i = 0; own.variables != nullptr && i < own.variables->count; ++i) {
        *own.variables->entries[i].offset += shift;
    }
}

// A method of one class itself.
Method own_method(Class *of, Selector name) {
    const auto table = methods().find(of);
    if (table == methods().end()) {
        return nullptr;
    }
    const auto found = table->second.find(name);
    return found == table->second.end() ? nullptr : found->second;
}

// C++ members of an object are made and destroyed by methods that clang writes, one a class.
void call_all(Object *object, Selector name, bool from_the_root) {
    std::vector<Class *> chain;
    for (Class *of = object->isa; of != nullptr; of = of->super) {
        chain.insert(from_the_root ? chain.begin() : chain.end(), of);
    }
    for (Class *of : chain) {
        if (const Method method = own_method(of, name)) {
            method(object, name);
        }
    }
}

// The count lies in the words before the object.
constexpr std::size_t kHeader = 16;

std::atomic<long> &count_of(Object *object) { return reinterpret_cast<std::atomic<long> *>(object)[-1]; }

// Classes live forever.
bool counted(Object *object) { return object != nullptr && (object->isa->description->flags & kIsMeta) == 0; }

thread_local std::vector<Object *> *autoreleased = nullptr; // null entries open a pool

} // namespace

extern "C" {

extern Class *__start_objc_classlist[], *__stop_objc_classlist[];
extern Selector __start_objc_selrefs[], __stop_objc_selrefs[];
void *_objc_empty_cache;

Method objc_find_method(Class *of, Selector name) {
    for (Class *in = of; in != nullptr; in = in->super) {
        if (const Method method = own_method(in, name)) {
            return method;
        }
    }
    std::fprintf(stderr, "objective-c: %s has no method %s\n", of->description->name, name);
    std::abort();
}

__attribute__((constructor(101))) static void read_sections() {
    for (Selector *name = __start_objc_selrefs; name < __stop_objc_selrefs; ++name) {
        *name = unique(*name);
    }
    for (Class **one = __start_objc_classlist; one < __stop_objc_classlist; ++one) {
        add_methods(*one);
        add_methods((*one)->isa);
        place_variables(*one);
    }
}

Object *class_createInstance(Class *of, std::size_t extra) {
    auto *memory = static_cast<char *>(std::calloc(1, kHeader + of->description->bytes + extra));
    auto *object = reinterpret_cast<Object *>(memory + kHeader);
    object->isa = of;
    count_of(object) = 1;
    call_all(object, unique(".cxx_construct"), true);
    return object;
}

void object_dispose(Object *object) {
    call_all(object, unique(".cxx_destruct"), false);
    std::free(reinterpret_cast<char *>(object) - kHeader);
}

Object *objc_retain(Object *object) {
    if (counted(object)) {
        ++count_of(object);
    }
    return object;
}

void objc_release(Object *object) {
    if (counted(object) && --count_of(object) == 0) {
        const Selector name = unique("dealloc");
        objc_find_method(object->isa, name)(object, name);
    }
}

void *objc_autoreleasePoolPush() {
    if (autoreleased == nullptr) {
        autoreleased = new std::vector<Object *>;
    }
    autoreleased->push_back(nullptr);
    return reinterpret_cast<void *>(autoreleased->size());
}

void objc_autoreleasePoolPop(void *pool) {
    while (autoreleased->size() >= reinterpret_cast<std::size_t>(pool)) {
        Object *object = autoreleased->back();
        autoreleased->pop_back();
        objc_release(object);
    }
}

Object *objc_autorelease(Object *object) {
    if (object != nullptr) {
        if (autoreleased == nullptr) {
            objc_autoreleasePoolPush();
        }
        autoreleased->push_back(object);
    }
    return object;
}

Object *objc_autoreleaseReturnValue(Object *object) { return objc_autorelease(object); }
Object *objc_retainAutorelease(Object *object) { return objc_autorelease(objc_retain(object)); }
Object *objc_retainAutoreleaseReturnValue(Object *object) { return objc_autorelease(objc_retain(object)); }
Object *objc_retainAutoreleasedReturnValue(Object *object) { return objc_retain(object); }
Object *objc_claimAutoreleasedReturnValue(Object *object) { return objc_retain(object); }
Object *objc_unsafeClaimAutoreleasedReturnValue(Object *object) { return object; }

void objc_storeStrong(Object **to, Object *object) {
    Object *old = *to;
    *to = objc_retain(object);
    objc_release(old);
}

Object *objc_alloc(Class *of) { return class_createInstance(of, 0); }

Object *objc_alloc_init(Class *of) {
    Object *object = objc_alloc(of);
    const Selector name = unique("init");
    return static_cast<Object *>(objc_find_method(of, name)(object, name));
}

Object *objc_opt_new(Class *of) { return objc_alloc_init(of); }

} // extern "C"

// Sending a message: find the method with every argument register saved, restore them, jump. A message to nil is zero.
asm(R"(
.text
.macro SAVE_ARGUMENTS
  pushq %rbp
  movq %rsp, %rbp
  subq $192, %rsp
  movq %rdi, -8(%rbp)
  movq %rsi, -16(%rbp)
  movq %rdx, -24(%rbp)
  movq %rcx, -32(%rbp)
  movq %r8, -40(%rbp)
  movq %r9, -48(%rbp)
  movq %rax, -56(%rbp)
  movups %xmm0, -80(%rbp)
  movups %xmm1, -96(%rbp)
  movups %xmm2, -112(%rbp)
  movups %xmm3, -128(%rbp)
  movups %xmm4, -144(%rbp)
  movups %xmm5, -160(%rbp)
  movups %xmm6, -176(%rbp)
  movups %xmm7, -192(%rbp)
.endm
.macro CALL_FOUND
  call objc_find_method@PLT
  movq %rax, %r11
  movq -8(%rbp), %rdi
  movq -16(%rbp), %rsi
  movq -24(%rbp), %rdx
  movq -32(%rbp), %rcx
  movq -40(%rbp), %r8
  movq -48(%rbp), %r9
  movq -56(%rbp), %rax
  movups -80(%rbp), %xmm0
  movups -96(%rbp), %xmm1
  movups -112(%rbp), %xmm2
  movups -128(%rbp), %xmm3
  movups -144(%rbp), %xmm4
  movups -160(%rbp), %xmm5
  movups -176(%rbp), %xmm6
  movups -192(%rbp), %xmm7
  leave
  jmp *%r11
.endm
.globl objc_msgSend
objc_msgSend:
  testq %rdi, %rdi
  jz 1f
  SAVE_ARGUMENTS
  movq (%rdi), %rdi
  CALL_FOUND
1:
  xorl %eax, %eax
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
.globl objc_msgSendSuper2
objc_msgSendSuper2:
  SAVE_ARGUMENTS
  movq 8(%rdi), %rax
  movq (%rdi), %rdi
  movq %rdi, -8(%rbp)
  movq 8(%rax), %rdi
  CALL_FOUND
)");
