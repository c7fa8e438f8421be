// Objects, strings, paths and errors of the stand-in. Compiled without ARC, which is built on them.

#import <Foundation/Foundation.h>

#include <fstream>
#include <sstream>
#include <string>

extern "C" {
id class_createInstance(Class of, size_t extra);
void object_dispose(id object);
id objc_retain(id object);
void objc_release(id object);
id objc_autorelease(id object);
}

@implementation NSObject
+ (instancetype)alloc {
    return class_createInstance((Class)self, 0);
}
+ (instancetype)new {
    return [[self alloc] init];
}
- (instancetype)init {
    return self;
}
- (void)dealloc {
    object_dispose(self);
}
@end

@interface NSString () {
    std::string *_text;
}
@end

@implementation NSString
+ (instancetype)stringWithUTF8String:(const char *)text {
    NSString *made = [self new];
    made->_text = new std::string(text);
    return objc_autorelease(made);
}
+ (instancetype)stringWithContentsOfFile:(NSString *)path encoding:(NSStringEncoding)encoding error:(NSError **)error {
    std::ifstream file(path.UTF8String);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) {
        *error = [NSError errorWithText:"the file cannot be read"];
        return nil;
    }
    return [self stringWithUTF8String:text.str().c_str()];
}
- (const char *)UTF8String {
    return _text->c_str();
}
- (void)dealloc {
    delete _text;
    [super dealloc];
}
@end

@interface NSArray () {
    id _object;
}
@end

@implementation NSArray
+ (instancetype)arrayWithObject:(id)object {
    NSArray *made = [self new];
    made->_object = objc_retain(object);
    return objc_autorelease(made);
}
- (id)firstObject {
    return _object;
}
- (void)dealloc {
    objc_release(_object);
    [super dealloc];
}
@end

@interface NSURL () {
    NSString *_path;
}
@end

@implementation NSURL
+ (instancetype)fileURLWithPath:(NSString *)path {
    NSURL *made = [self new];
    made->_path = objc_retain(path);
    return objc_autorelease(made);
}
- (NSString *)path {
    return _path;
}
- (void)dealloc {
    objc_release(_path);
    [super dealloc];
}
@end

@interface NSError () {
    NSString *_text;
}
@end

@implementation NSError
+ (instancetype)errorWithText:(const char *)text {
    NSError *made = [self new];
    made->_text = objc_retain([NSString stringWithUTF8String:text]);
    return objc_autorelease(made);
}
- (NSString *)localizedDescription {
    return _text;
}
- (void)dealloc {
    objc_release(_text);
    [super dealloc];
}
@end
