// The part of Foundation that lily's Metal driver uses, for Linux. Names and meanings are Apple's; foundation.mm has the
// code. With clang's Apple ABI on ELF, and runtime.cpp as the Objective-C runtime.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef bool BOOL;
#define YES __objc_yes
#define NO __objc_no
#define nil nullptr
#define NS_ENUM(type, name)                                                                                            \
    enum name : type name;                                                                                             \
    enum name : type
#define NS_OPTIONS(type, name)                                                                                         \
    type name;                                                                                                         \
    enum : type
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define API_AVAILABLE(...)

typedef struct objc_selector *SEL;
typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef NSUInteger NSStringEncoding;
enum : NSStringEncoding { NSUTF8StringEncoding = 4 };

@class NSString;

@protocol NSObject
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
}
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
- (void)dealloc;
@end

@interface NSError : NSObject
@property(readonly) NSString *localizedDescription;
+ (instancetype)errorWithText:(const char *)text; // of the stand-in
@end

@interface NSString : NSObject
@property(readonly) const char *UTF8String;
+ (instancetype)stringWithUTF8String:(const char *)text;
+ (instancetype)stringWithContentsOfFile:(NSString *)path encoding:(NSStringEncoding)encoding error:(NSError **)error;
@end

@interface NSArray : NSObject
@property(readonly) id firstObject;
+ (instancetype)arrayWithObject:(id)object;
@end

@interface NSURL : NSObject
@property(readonly) NSString *path;
+ (instancetype)fileURLWithPath:(NSString *)path;
@end
